//! The controllers of kube-controller-manager that a node autoscaler meets.
