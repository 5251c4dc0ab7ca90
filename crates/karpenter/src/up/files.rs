//! Writes files for other programs: readable by their owner only, and atomically.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Writes a temporary file and renames it, so that readers never see an incomplete file.
pub(super) fn write_private(file: &Path, text: &str) -> Result<()> {
    if let Some(parent) = file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    }
    let mut beside = file.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = PathBuf::from(beside);
    let write = || -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        let mut open = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        open.write_all(text.as_bytes())?;
        open.sync_all()?;
        fs::rename(&beside, file)
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

/// Quotes a path for a shell.
pub(super) fn shell_quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |character: char| character.is_ascii_alphanumeric() || "/._-+:@%".contains(character);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn file_is_private_and_no_temporary_file_remains() {
        let directory = std::env::temp_dir().join(format!("karpenter-up-files-{}", std::process::id()));
        let file = directory.join("deep").join("kubeconfig");
        write_private(&file, "one").expect("written");
        write_private(&file, "two").expect("written again");
        assert_eq!(fs::read_to_string(&file).expect("readable"), "two");
        assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
        let entries = fs::read_dir(file.parent().expect("has one")).expect("listed").count();
        fs::remove_dir_all(&directory).expect("removed");
        assert_eq!(entries, 1);
    }

    #[test]
    fn paths_are_quoted_only_if_needed() {
        assert_eq!(shell_quoted(Path::new("/tmp/a-b.c")), "/tmp/a-b.c");
        assert_eq!(shell_quoted(Path::new("/tmp/a b'c")), "'/tmp/a b'\\''c'");
    }
}
