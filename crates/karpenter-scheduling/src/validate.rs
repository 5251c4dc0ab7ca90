//! Independent check of a plan against its problem; shares no feasibility code with the solver.
