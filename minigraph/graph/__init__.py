"""The graph: nodes and tensor values as columns, its builder, gradient, inference, printer and lint."""
from .builder import GraphBuilder
from .graph import BACKWARD, FORWARD, UPDATE, Graph

__all__ = ["BACKWARD", "FORWARD", "UPDATE", "Graph", "GraphBuilder"]
