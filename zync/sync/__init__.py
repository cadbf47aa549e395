"""Process 2, `zync sync raw staging`: turns raw records into whole transactions. `syncer.STAGES` lists the stages."""
