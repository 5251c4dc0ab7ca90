//! A kube-scheduler: which node a pod goes to, and why it goes to none.
