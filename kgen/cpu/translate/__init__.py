"""PTX -> lists of statements: parse, flow, regions and chains, and instructions by the tables of kgen/cpu/forms."""
