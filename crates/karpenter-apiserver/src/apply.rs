//! Server-side apply and field ownership (`metadata.managedFields`).
