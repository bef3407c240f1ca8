"""Data sets: reading and writing them, noise on purpose, a drawn data set, and what is computed from data alone.

In reading order:

    formats/            readers and writers: a folder or file -> Pairs, Pairs -> a folder
    scenes/             picture-book scenes: a data set that is drawn here, whose truth is known exactly
    noise/              mismatched pairs and flipped labels, from a seed and on record
    tokenising.py       a caption cut into words
    caption_labels.py   class labels from the things that captions name
    content.py          what pictures and features hold, as digests; files that did not change are not read again
    fingerprints.py     is this the same data? which pairs has a run learnt from?
    near_duplicates.py  pictures that look the same
    camera_notes.py     when a picture was taken, and with which camera
    cache.py            the folder that keeps what is costly to compute from pictures
    findings.py         the files of an audit: pairs.csv and summary.json, read and written
    decisions.py        what a person decided of an audit's findings: keep, drop, rematch
    label_studio_answers.py  the same out of Label Studio
    value_trees.py      nested values and arrays in one safetensors file
    cells.py            CSV cells that a spreadsheet cannot take for a formula
"""
