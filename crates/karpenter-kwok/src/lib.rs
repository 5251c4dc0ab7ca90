//! A provider whose instances are Node objects: for clusters without a cloud, where kwok or our own kubelets play the
//! machines.
