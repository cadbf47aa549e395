"""Raw records to whole transactions: decode → assemble → gather, with what staging knows already."""
