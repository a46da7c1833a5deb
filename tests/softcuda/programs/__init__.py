"""What the tests run on the driver, in processes of their own: functions of a Gpu (child.py)."""
