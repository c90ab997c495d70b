"""From raw parallel text to what the trainer reads: corpora -> text -> binarise, tied together by prepare."""
