"""An operator, an opcode, a host operator, a rule, a threshold method, a stage, a front end and a target."""
