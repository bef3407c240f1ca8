"""How a method is described and trained.

In reading order:

    contract.py     what a method gives: a recipe, a strategy; what both see of a run
    arguments.py    the arguments of a method: a dataclass, bounds in its annotations, shared groups inherited
    registry.py     methods by name: ours, those of installed packages, those of a single file
    first_choice.py which recipe where none was named
    strategies.py   how epochs are spent: plainly, after a warm-up, several networks apart
    network.py      one network in training: matcher, objective, optimiser, averaged weights
    graphed.py      steps of training as CUDA graphs
    schedules.py    parameter groups and how their learning rates change
    optimisers.py   AdamP, which torch does not bring
    trainer.py      the epochs: step, log, validate, keep the best; stop and resume at the same step
    callbacks.py    what else happens meanwhile: progress, a line an epoch
    loggers.py      curves for TensorBoard, W&B and MLflow
    checkpoints.py  weights and training states as safetensors
    pair_losses.py  one pass over the training pairs in evaluation mode: the loss of each
    division.py     which pairs look clean, from their losses: NCR's mixture and others
    cross_fits.py   canonical correlation on all folds but one, and weights from it
    closed_form.py  how well pairs fit before anything is trained, by it
    mining/         hard negatives over a whole training set, as lists
    foreign/        the authors' checkpoints and vocabularies, read without running them
"""
