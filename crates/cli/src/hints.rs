//! Hints of the library speak of the library; on the command line the same is done with flags, variables and commands.

/// What the library says, and how that is done here. Longer phrases stand before those that they contain.
const ON_THE_COMMAND_LINE: &[(&str, &str)] = &[
    ("as file:PATH", "with --store file:PATH"),
    ("with a longer limit", "with a longer limit (--wait)"),
    (
        "is given with ClientBuilder::password",
        "is read from --password-file, LEASEHOLD_PASSWORD_FILE or LEASEHOLD_PASSWORD",
    ),
    ("leasehold::examine", "'leasehold doctor'"),
    ("Client::inspect", "'leasehold show NAME'"),
    ("break it with `reset_fence`", "run 'leasehold break NAME --yes --now --reset-fence'"),
    ("Client::break_lock (reset_fence)", "'leasehold break NAME --yes --reset-fence'"),
    ("Client::break_lock (Break::Now)", "'leasehold break NAME --yes --now'"),
];

/// A hint of the library in the words of the command line.
pub(crate) fn on_the_command_line(hint: &str) -> String {
    let mut said = hint.to_owned();
    for (library, here) in ON_THE_COMMAND_LINE {
        if said.contains(library) {
            said = said.replace(library, here);
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    /// Production code of the library and its stores.
    fn library() -> Vec<(PathBuf, String)> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all crates");
        let mut folders = vec![crates.join("core/src"), crates.join("leasehold/src"), crates.join("stores")];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("a folder of sources").flatten() {
                let path = entry.path();
                if path.is_dir() && !path.ends_with("tests") && !path.ends_with("target") {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
                    files.push((path.clone(), std::fs::read_to_string(&path).expect("a source")));
                }
            }
        }
        files
    }

    /// A program that uses the library has no flags.
    #[test]
    fn the_library_names_no_flag_no_command_and_no_variable() {
        let files = library();
        assert!(files.len() > 50, "only {} sources were found", files.len());
        for (path, text) in files {
            let code = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
            for line in code.filter(|line| !line.trim_start().starts_with("//")) {
                let named =
                    |(at, _): (usize, &str)| line[at + 2..].starts_with(|after: char| after.is_ascii_lowercase());
                let flag = line.match_indices("--").any(named) && !line.contains("--boottime");
                let command = ["'leasehold ", "`leasehold ", "LEASEHOLD_"].iter().any(|word| line.contains(word));
                assert!(!flag && !command, "{}: {line}", path.display());
            }
        }
    }

    /// What is translated is said by the library.
    #[test]
    fn every_phrase_is_one_of_the_library_s_and_is_translated() {
        let library: String = library().into_iter().map(|(_, text)| text).collect();
        for (phrase, here) in ON_THE_COMMAND_LINE {
            assert!(library.contains(phrase), "{phrase:?} is said nowhere");
            assert_eq!(on_the_command_line(&format!("or {phrase} it")), format!("or {here} it"));
        }
        assert_eq!(on_the_command_line("check user and password"), "check user and password");
    }
}
