//! Kubelets for nodes that exist only as objects.
