"""One file a paper: each reads like it and ends with its arguments, its presets and how its authors' files are read.

    vse                 VSE++ and VSE-infinity: one vector a picture, one a caption
    scan                SCAN: words look at regions, or regions at words; what BFAN and IMRAM share
    bfan, imram         focal attention; recurrent attention with a memory
    sgraf               SGR, SAF and both: similarity_vectors, similarity_heads and whole_vectors are its parts
    vsrn                regions reasoned over, with captioning beside the ranking
    pvse, pcme          several vectors a side (pie_net); Gaussians instead of points (gaussians)
    dive                DivE: set_encoders, slots and set_losses are its parts, dive_files reads the authors' files
    ncr, ncr_plus       NCR, and our own NCR+: trust in pairs; rebuilt finds doubted ones a trusted partner
    aoq                 AOQ: a second round on mined negatives; quintuplets is its loss
    lantern             our own: DivE's sets with NCR+'s trust
    mrl, deep_sm        class labels, wrong ones among them
    semantic_sharing    one transformer for both sides: shared_tokens, shared_transformer, shared_start, shared_losses
    dscmr, sdml         supervised common spaces
    fgcrossnet, dccae   fine-grained classes; deep canonical correlation
    dual                joint models, zero-shot or tuned: dual_files reads their weights, low_rank is LoRA

A file ends with `METHODS`, a list of `Method` (`training/registry.py`): the name, the dataclass of arguments, the
paper, presets. To add a method to the package, write such a file and give its name a line in `plugins.py`; a method of
your own needs neither (`docs/extending.md`).
"""
