"""Tests of the plan: verifier, printer, files, report, simulator."""
