//! Lists as tables, the way kubectl prints them.
