//! Translates hints of the library, which name its API, into flags, variables and commands.

use std::sync::OnceLock;

use crate::args::CommonArgs;

/// The flags that named the store of this command, without credentials. Hints that name another command repeat them.
static STORE_FLAGS: OnceLock<Vec<String>> = OnceLock::new();

/// Whether `--no-create` was given: it sets `create=no` in the URL.
static NO_CREATE: OnceLock<()> = OnceLock::new();

/// The command line's equivalent of a phrase in the library's hints.
enum Here {
    Words(&'static str),
    /// A command: the words before it, its name, whether it takes a lock's name, and its flags.
    Command(&'static str, &'static str, bool, &'static [&'static str]),
}

/// Phrases of the library and their equivalents. Longer phrases come before those that they contain.
const ON_THE_COMMAND_LINE: &[(&str, Here)] = &[
    ("(file:PATH)", Here::Words("(--store file:PATH)")),
    ("with a longer limit", Here::Words("with a longer limit (--wait)")),
    (
        "is given with ClientBuilder::password",
        Here::Words("is read from --password-file, LEASEHOLD_PASSWORD_FILE or LEASEHOLD_PASSWORD"),
    ),
    ("leasehold::examine", Here::Command("", "doctor", false, &[])),
    ("Client::inspect", Here::Command("", "show", true, &[])),
    ("break it with `reset_fence`", Here::Command("run ", "break", true, &["--yes", "--now", "--reset-fence"])),
    ("Client::break_lock (reset_fence)", Here::Command("", "break", true, &["--yes", "--reset-fence"])),
    ("Client::break_lock (Break::Now)", Here::Command("", "break", true, &["--yes", "--now"])),
    ("Client::break_lock", Here::Command("", "break", true, &["--yes"])),
];

impl Here {
    fn text(&self, name: Option<&str>) -> String {
        match *self {
            Self::Words(words) => words.to_owned(),
            Self::Command(before, command, takes_name, flags) => {
                let name = takes_name.then(|| name.map_or_else(|| NAME.to_owned(), escaped));
                format!("{before}{}", command_line(command, name.as_deref(), flags, store_flags()))
            }
        }
    }
}

/// Stands for an unknown name.
const NAME: &str = "NAME";

/// Remembers how the store was given. A variable applies to the next command as well, and an invalid URL names no
/// store.
pub(crate) fn remember_store(common: &CommonArgs) {
    if common.no_create {
        // A process has one command line.
        let _ = NO_CREATE.set(());
    }
    let Some(url) = common.store.as_deref().and_then(|url| leasehold::without_password(url).ok()) else { return };
    let mut flags = vec!["--store".to_owned(), url];
    if let Some(file) = common.password_file.as_deref().and_then(|file| file.to_str()) {
        flags.extend(["--password-file".to_owned(), file.to_owned()]);
    }
    let _ = STORE_FLAGS.set(flags);
}

/// Names the flag instead of the URL option that it set.
pub(crate) fn with_flags(text: &str) -> String {
    if NO_CREATE.get().is_some() { text.replace("create=no", "--no-create") } else { text.to_owned() }
}

fn store_flags() -> &'static [String] {
    STORE_FLAGS.get().map(Vec::as_slice).unwrap_or_default()
}

/// A hint of the library in terms of the command line; `name` is the lock it is about, if any.
pub(crate) fn on_the_command_line(hint: &str, name: Option<&str>) -> String {
    let mut said = with_flags(hint);
    for (library, here) in ON_THE_COMMAND_LINE {
        if said.contains(library) {
            said = said.replace(library, &here.text(name));
        }
    }
    said
}

/// The command that shows a lock of this store, quoted for a shell.
pub(crate) fn show(name: &str) -> String {
    command_line("show", Some(&escaped(name)), &[], store_flags())
}

/// The same for an unknown name.
pub(crate) fn show_any() -> String {
    command_line("show", Some(NAME), &[], store_flags())
}

/// The command that breaks a lock of this store.
pub(crate) fn break_lock(name: &str) -> String {
    command_line("break", Some(&escaped(name)), &["--yes"], store_flags())
}

/// The command that checks this store.
pub(crate) fn doctor() -> String {
    command_line("doctor", None, &[], store_flags())
}

/// A name as an argument: commas are escaped.
fn escaped(name: &str) -> String {
    name.replace(',', "\\,")
}

/// A command quoted for a shell. If no word of it needs quotes, quotes set the whole apart from the sentence.
fn command_line(command: &str, name: Option<&str>, flags: &[&str], store: &[String]) -> String {
    let mut words = vec!["leasehold", command];
    let is_like_a_flag = name.is_some_and(|name| name.starts_with('-'));
    words.extend(name.filter(|_| !is_like_a_flag));
    words.extend(flags);
    words.extend(store.iter().map(String::as_str));
    if is_like_a_flag {
        words.extend(["--"].into_iter().chain(name));
    }
    let line = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    if words.iter().all(|word| is_plain(word)) { format!("'{line}'") } else { line }
}

fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./:@%+=,".contains(&byte))
}

fn quoted(word: &str) -> String {
    if is_plain(word) { word.to_owned() } else { in_quotes(word) }
}

/// One word for a shell, always in quotes.
pub(crate) fn in_quotes(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    /// Source code of the library and its stores, without tests.
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

    /// Each phrase occurs in the library, and is translated.
    #[test]
    fn every_phrase_is_one_of_the_library_s_and_is_translated() {
        let library: String = library().into_iter().map(|(_, text)| text).collect();
        for (phrase, here) in ON_THE_COMMAND_LINE {
            assert!(library.contains(phrase), "{phrase:?} is said nowhere");
            assert_eq!(on_the_command_line(&format!("or {phrase} it"), None), format!("or {} it", here.text(None)));
        }
        assert_eq!(on_the_command_line("check user and password", None), "check user and password");
        assert_eq!(on_the_command_line("Client::inspect says who", Some("a b")), "leasehold show 'a b' says who");
        assert_eq!(
            on_the_command_line("break it with `reset_fence`", Some("a")),
            "run 'leasehold break a --yes --now --reset-fence'"
        );
    }

    #[test]
    fn a_command_can_be_pasted_into_a_shell() {
        assert_eq!(show("jobs/a-1"), "'leasehold show jobs/a-1'");
        assert_eq!(show("a b"), "leasehold show 'a b'");
        assert_eq!(show("it's"), r"leasehold show 'it'\''s'");
        assert_eq!(show("a,b"), r"leasehold show 'a\,b'");
        assert_eq!(show("-a"), "'leasehold show -- -a'");
        assert_eq!(show(""), "leasehold show ''");
    }

    #[test]
    fn a_command_names_the_store_that_was_given() {
        let flags = |url: &str| ["--store".to_owned(), url.to_owned()];
        let said = command_line("show", Some("a"), &[], &flags("redis://u@h"));
        assert_eq!(said, "'leasehold show a --store redis://u@h'");
        let said = command_line("break", Some("-a"), &["--yes"], &flags("redis://h?prefix=b:&layout=plain"));
        assert_eq!(said, "leasehold break --yes --store 'redis://h?prefix=b:&layout=plain' -- -a");
    }
}
