//! One shared, ordered copy of the objects of a kind, fed by a watch.
