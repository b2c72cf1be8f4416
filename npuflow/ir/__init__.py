"""The compiler's data: types, graph, operator contract, iteration space, rewrite rule."""
