"""How the starters are made: heads over stored DINOv2 cells and MiniLM states, then TinyViT taught by them.

    python -m benchmarks.starter WORK look --data FLICKR8K --data COCO           # once: DINOv2's cells
    python -m benchmarks.starter WORK look-small --data FLICKR8K --data COCO     # once: TinyViT up to its last blocks
    python -m benchmarks.starter WORK read --data FLICKR8K --data COCO           # once: MiniLM up to its last blocks
    python -m benchmarks.starter WORK heads --data FLICKR8K --data COCO          # `starter`
    python -m benchmarks.starter WORK finish-small --data FLICKR8K --data COCO   # once: the rest of TinyViT, as it came
    python -m benchmarks.starter WORK small --data FLICKR8K --data COCO --late-rate 0       # heads over its cells
    python -m benchmarks.starter WORK small --data FLICKR8K --data COCO --begin RESULT.pt   # its last blocks along
    python -m benchmarks.starter WORK ship --data FLICKR8K --data COCO           # into matchlight/runs/shipped
    python -m benchmarks.starter WORK chances --data COCO                        # how likely their hits are right

A run that has learnt from one data set alone, and so can be measured on the other, comes at little cost without a
teacher: heads over TinyViT's cells as it came, and MiniLM's last blocks. `benchmarks/first_command.py` begins with it:

    python -m benchmarks.starter WORK see-small --data FLICKR8K                  # once: TinyViT's cells as it came
    python -m benchmarks.starter WORK plain --data FLICKR8K --epochs 6 --steps 30
    python -m benchmarks.starter WORK ship-plain --data FLICKR8K --student plain-flickr8k-0.pt --into RUN

Every step goes on where it was stopped: the first three keep what they finish in parts of 2,000 pictures, `heads` and
`small` save after every epoch. `--minutes` stops a step in good time (exit 75: call it again). `--train NAME` learns
from one of the data sets alone. One thread is used for learning, so that two seeds can run side by side. `look` needs
a CPU that multiplies in bfloat16 to be quick.

    looking.py     what frozen networks see and read, stored once
    stored.py      what is stored, as batches
    towers.py      a picture tower and a caption tower over what is stored
    learning.py    the loss and the epochs
    measuring.py   recalls on a split
    shipping.py    the chosen weights as runs of the package
"""
