"""Reports: run folders in; tables, status lines and a dashboard out. Loads no torch, so that `lnexp table` is quick."""
