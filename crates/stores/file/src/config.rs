//! Parses the part of a URL after `file:` into settings.

use std::path::{Component, Path, PathBuf};

use leasehold_core::Error;

use rustix::fs::FileType;

use crate::directory::{Site, kind};
use crate::error;

/// The scheme of this store's URLs.
pub const SCHEME: &str = "file";

/// Location and options of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Absolute path of the file.
    pub path: PathBuf,
    /// Whether the death of a process ends its kept leases at once. If off, they run out.
    pub liveness: bool,
    /// Whether a missing file is created.
    pub create: bool,
}

impl Config {
    /// Parses the path between `file:` and `?`, and the options after it. A relative path starts at the current
    /// directory; `file:///path` equals `file:/path`.
    ///
    /// # Errors
    ///
    /// A bad argument if the path is missing or names a host, or if an option is unknown.
    pub fn new(path: &str, options: &[(String, String)]) -> Result<Self, Error> {
        let path = match path.strip_prefix("//") {
            Some(rest) => match rest.split_once('/') {
                Some(("" | "localhost", _)) => rest.strip_prefix("localhost").unwrap_or(rest),
                _ => return Err(error::host_in_path(path)),
            },
            None => path,
        };
        if path.is_empty() || path.contains('\0') {
            return Err(error::no_path());
        }
        let mut config = Self { path: from_root(Path::new(path))?, liveness: true, create: true };
        for (option, value) in options {
            match (option.as_str(), value.as_str()) {
                ("liveness", "on") => config.liveness = true,
                ("liveness", "off") => config.liveness = false,
                ("create", "yes") => config.create = true,
                ("create", "no") => config.create = false,
                ("create", _) => return Err(error::bad_create(value)),
                ("liveness", _) => return Err(error::bad_liveness(value)),
                _ => return Err(error::no_such_option(option)),
            }
        }
        Ok(config)
    }

    /// Resolves symbolic links, so that a link and its target are one store. Untrusted links stay, and are refused when
    /// the file is opened.
    #[must_use]
    pub fn resolved(&self) -> Self {
        let path = match Site::find(&self.path, false) {
            Ok(Some(site)) => site.path(""),
            Ok(None) => self.known_part(),
            Err(_) => self.path.clone(),
        };
        Self { path, ..*self }
    }

    /// The path with the links resolved in the part of it that exists.
    fn known_part(&self) -> PathBuf {
        let found = self.path.ancestors().skip(1).find_map(|folder| {
            let site = Site::find(folder, false).ok()??;
            let rest = self.path.strip_prefix(folder).ok()?;
            Some(site.path("").join(rest))
        });
        found.unwrap_or_else(|| self.path.clone())
    }

    /// Whether the store has not been created yet: no file exists, or an empty one that only sets the access rights.
    pub fn is_unmade(&self) -> bool {
        match Site::find(&self.path, false) {
            Ok(Some(site)) => match site.stat("") {
                Ok(Some(found)) => found.st_size == 0 && kind(&found) == FileType::RegularFile,
                Ok(None) => true,
                Err(_) => false,
            },
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Human-readable label.
    pub fn label(&self) -> String {
        format!("{SCHEME}:{}", self.path.display())
    }
}

fn from_root(path: &Path) -> Result<PathBuf, Error> {
    let whole = std::path::absolute(path).map_err(|fault| error::no_current_folder(&fault))?;
    Ok(whole.components().filter(|part| *part != Component::CurDir).collect())
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    fn options(given: &[(&str, &str)]) -> Vec<(String, String)> {
        given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn paths_are_taken_from_the_root() {
        for same in ["/a/b.db", "///a/b.db", "//localhost/a/b.db", "/a/./b.db"] {
            assert_eq!(Config::new(same, &[]).unwrap().label(), "file:/a/b.db");
        }
        let here = std::env::current_dir().unwrap();
        assert_eq!(Config::new("b.db", &[]).unwrap().path, here.join("b.db"));
    }

    #[test]
    fn a_file_is_made_when_there_is_something_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/locks.db");
        let config = Config::new(path.to_str().unwrap(), &[]).unwrap();
        assert!(config.is_unmade());
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "").unwrap();
        assert!(config.is_unmade());
        std::fs::write(&path, "x").unwrap();
        assert!(!config.is_unmade());
        assert!(
            !Config::new(folder.path().to_str().unwrap(), &[]).unwrap().is_unmade(),
            "a folder is not an uncreated store"
        );
    }

    #[test]
    fn wrong_paths_and_options_are_refused() {
        for wrong in ["", "//host/a", "//host"] {
            assert_eq!(Config::new(wrong, &[]).unwrap_err().kind(), ErrorKind::BadArgument, "{wrong}");
        }
        let error = Config::new("a", &options(&[("prefix", "x")])).unwrap_err();
        assert!(error.to_string().contains("liveness"), "{error}");
        assert!(Config::new("a", &options(&[("liveness", "maybe")])).is_err());
        assert!(!Config::new("a", &options(&[("liveness", "off")])).unwrap().liveness);
        assert!(Config::new("a", &options(&[("create", "maybe")])).is_err());
        assert!(!Config::new("a", &options(&[("create", "no")])).unwrap().create);
    }
}
