"""Process 2, `zync sync raw staging`: raw records to whole transactions. `syncer.STAGES` has the stages."""
