"""How a network is cut into tiles that fit local memory, and what that costs."""
