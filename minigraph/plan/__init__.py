"""The plan as data: its types, printer, verifier, simulator, report and files."""
