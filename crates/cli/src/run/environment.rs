//! The variables that tell a command about its lock, and how a nested `run` uses them.
//!
//! Variables may be old, copied or forged, so they do not prove that a lock is held. A run that joins asks the store as
//! that owner, and continues only with exactly the fences in the variables.

use std::collections::BTreeMap;
use std::ffi::OsString;

use leasehold::{Client, GroupGuard, Identity, Name};
use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::settings::{Password, StoreSettings};
use crate::{names, settings, store};

const NAME: &str = "LEASEHOLD_NAME";
const FENCE: &str = "LEASEHOLD_FENCE";
const FENCES: &str = "LEASEHOLD_FENCES";
const OWNER: &str = "LEASEHOLD_OWNER";
const STORE_LABEL: &str = "LEASEHOLD_STORE_LABEL";
/// Identity of the store, whatever its address; empty if unknown.
const STORE_ID: &str = "LEASEHOLD_STORE_ID";
/// What the runs around the one of [`NAME`] hold, as JSON, the nearest first.
const OUTER: &str = "LEASEHOLD_OUTER";

/// Linux starts no program with a longer variable, including its name.
const VARIABLE_MAX: usize = 128 * 1024 - 1;

/// A variable of the command, and its value if it is set.
pub(crate) type Variable = (&'static str, Option<OsString>);

/// The variables of a command that runs under `guard`. All are always set, so that none of an outer `run` shows
/// through.
pub(crate) fn variables(guard: &GroupGuard, here: &Here, around: &Around) -> Result<Vec<Variable>, Failure> {
    let held = Outer::of(guard, here);
    let all: Vec<Name> = guard.fences().map(|(name, _)| name.clone()).collect();
    let pairs: Vec<String> =
        guard.fences().map(|(name, fence)| format!("{}={fence}", names::join(std::slice::from_ref(name)))).collect();
    let variables = vec![
        (NAME, names::join(&all)),
        (FENCE, guard.guards()[0].fence().to_string()),
        (FENCES, pairs.join(",")),
        (OWNER, held.owner.clone()),
        (STORE_LABEL, held.store.clone()),
        (STORE_ID, held.store_id.clone().unwrap_or_default()),
        (OUTER, around.told_within(&held)),
    ];
    match variables.iter().find(|(name, value)| name.len() + 1 + value.len() > VARIABLE_MAX) {
        None => Ok(variables.into_iter().map(|(name, value)| (name, Some(value.into()))).collect()),
        Some((name, value)) => {
            let what = format!("too many names for the command's environment: {name} would have {} bytes", value.len());
            Err(Failure::usage(what).with_hint("use fewer or shorter names, here and in the outer runs"))
        }
    }
}

/// The variables that name the store. The command gets no password unless that is wanted: a nested `run` reads the
/// password file.
pub(crate) fn store_variables(store: &StoreSettings, pass_secrets: bool) -> Vec<Variable> {
    let mut variables: Vec<Variable> = Vec::new();
    if let Some(Password::File(path)) = &store.password {
        // A pipe can be read only once.
        let path = std::path::absolute(path).ok().filter(|path| path.is_file());
        variables.push((settings::PASSWORD_FILE, path.map(Into::into)));
    }
    if pass_secrets {
        return variables;
    }
    if let Some(url) = std::env::var_os(settings::STORE) {
        // An invalid one was not used, and may still contain a password.
        let told = url.to_str().and_then(|url| leasehold::without_password(url).ok());
        variables.push((settings::STORE, told.map(Into::into)));
    }
    variables.push((settings::PASSWORD, None));
    variables
}

/// The store of this process, as runs tell each other about it.
#[derive(Clone, Debug)]
pub(crate) struct Here {
    label: String,
    id: Option<String>,
}

impl Here {
    /// Asks the store for its identity. Without one, only the label identifies it; so it does for a quorum, which would
    /// have to ask servers that may be down.
    pub(crate) async fn of(client: &Client) -> Self {
        let label = client.store_label().to_owned();
        if store::is_alone(client) || label.starts_with("redlock") {
            return Self { label, id: None };
        }
        let identity = client.identity().await.ok().filter(Identity::is_known);
        // Another layout on the same server has other locks.
        let options = label.split_once('?').map_or("", |(_, options)| options);
        let id = identity.map(|identity| format!("{identity:?}?{options}"));
        Self { label, id }
    }

    /// A store that does not exist yet: it has no identity.
    pub(crate) fn not_created(label: &str) -> Self {
        Self { label: label.to_owned(), id: None }
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }
}

/// An outer `run`.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq, Debug)]
pub(crate) struct Outer {
    store: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    store_id: Option<String>,
    pub(crate) owner: String,
    /// For every name that it holds.
    fences: BTreeMap<String, u64>,
}

impl Outer {
    fn of(guard: &GroupGuard, here: &Here) -> Self {
        let fences = guard.fences().map(|(name, fence)| (name.to_string(), fence.get())).collect();
        let (store, store_id) = (here.label.clone(), here.id.clone());
        Self { store, store_id, owner: guard.guards()[0].owner().to_string(), fences }
    }

    /// The nearest one, from the variables that every command has.
    fn nearest(variable: &impl Fn(&str) -> Option<String>) -> Option<Self> {
        let names = names::parse(&variable(NAME)?).ok()?;
        let told = match variable(FENCES) {
            Some(all) => names::split(&all),
            None => vec![format!("{}={}", names.first()?, variable(FENCE)?)],
        };
        let told: BTreeMap<&str, &str> = told.iter().filter_map(|pair| pair.rsplit_once('=')).collect();
        let fence = |name: &Name| Some((name.to_string(), told.get(name.as_str())?.parse().ok()?));
        let fences = names.iter().map(fence).collect::<Option<_>>()?;
        let store_id = variable(STORE_ID).filter(|id| !id.is_empty());
        Some(Self { store: variable(STORE_LABEL)?, store_id, owner: variable(OWNER)?, fences })
    }

    /// A store is the same if its label or its identity is: a server has many names.
    fn is_on(&self, label: &str, id: Option<&String>) -> bool {
        self.store == label || (id.is_some() && self.store_id.as_ref() == id)
    }

    fn has(&self, name: &Name, here: &Here) -> bool {
        self.is_on(&here.label, here.id.as_ref()) && self.fences.contains_key(name.as_str())
    }

    /// Whether it has all that the other one has, from the same grant.
    fn covers(&self, other: &Self) -> bool {
        let has = |(name, fence): (&String, &u64)| self.fences.get(name) == Some(fence);
        let is_there = self.is_on(&other.store, other.store_id.as_ref());
        is_there && self.owner == other.owner && other.fences.iter().all(has)
    }

    /// The names of a guard whose grant differs from this run's.
    pub(crate) fn other_grants(&self, guard: &GroupGuard) -> Vec<Name> {
        let others = guard.fences().filter(|(name, fence)| self.fences.get(name.as_str()) != Some(&fence.get()));
        others.map(|(name, _)| name.clone()).collect()
    }
}

/// The outer runs, the nearest first.
#[derive(Debug)]
pub(crate) struct Around(Vec<Outer>);

/// How the wanted names relate to those of the outer runs.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Nesting<'a> {
    /// No outer run has any of them.
    Apart,
    /// This one has all of them: they are joined.
    Within(&'a Outer),
    /// This name is held, but no single outer run has it with all the others: waiting for it would be waiting for
    /// oneself.
    Across(Name),
}

impl Around {
    /// From the variables of this process. Without complete variables of the nearest run there is none: unsetting
    /// `LEASEHOLD_NAME` leaves them all.
    pub(crate) fn of_process() -> Self {
        Self::new(|name| std::env::var(name).ok())
    }

    fn new(variable: impl Fn(&str) -> Option<String>) -> Self {
        let Some(nearest) = Outer::nearest(&variable) else { return Self(Vec::new()) };
        let further: Option<Vec<Outer>> = variable(OUTER).and_then(|text| serde_json::from_str(&text).ok());
        Self(std::iter::once(nearest).chain(further.unwrap_or_default()).collect())
    }

    /// How `wanted` on that store relates to what they hold.
    pub(crate) fn nesting(&self, wanted: &[Name], here: &Here) -> Nesting<'_> {
        let has_all = |outer: &&Outer| wanted.iter().all(|name| outer.has(name, here));
        if let Some(outer) = self.0.iter().find(has_all) {
            return Nesting::Within(outer);
        }
        let is_held = |name: &&Name| self.0.iter().any(|outer| outer.has(name, here));
        wanted.iter().find(is_held).map_or(Nesting::Apart, |name| Nesting::Across(name.clone()))
    }

    /// Whether one of them holds one of these names as that owner.
    pub(crate) fn has_as(&self, owner: &str, wanted: &[Name], here: &Here) -> bool {
        let has = |outer: &Outer| wanted.iter().any(|name| outer.has(name, here));
        self.0.iter().any(|outer| outer.owner == owner && has(outer))
    }

    /// What the command of a `run` that has `held` is told about the outer runs. One that joined adds nothing: this
    /// does not grow with the nesting of runs of the same names.
    fn told_within(&self, held: &Outer) -> String {
        let mut told: Vec<&Outer> = Vec::new();
        for outer in self.0.iter().filter(|outer| !held.covers(outer)) {
            if !told.iter().any(|nearer| nearer.covers(outer)) {
                told.retain(|nearer| !outer.covers(nearer));
                told.push(outer);
            }
        }
        if told.is_empty() { String::new() } else { serde_json::to_string(&told).unwrap_or_default() }
    }
}

/// Whether this process is inside a `run`, according to its variables.
pub(crate) fn is_nested() -> bool {
    !Around::of_process().0.is_empty()
}

/// The store of the nearest outer `run`, if no outer run uses this one.
pub(crate) fn store_around(here: &Here) -> Option<String> {
    let around = Around::of_process();
    let is_same = around.0.iter().any(|outer| outer.is_on(&here.label, here.id.as_ref()));
    around.0.into_iter().next().filter(|_| !is_same).map(|outer| outer.store)
}

/// Whether this process is inside a `run` that holds this name as this owner.
pub(crate) async fn is_inside(owner: &str, name: &Name, client: &Client) -> bool {
    let around = Around::of_process();
    !around.0.is_empty() && around.has_as(owner, std::slice::from_ref(name), &Here::of(client).await)
}

/// The first of these names that an outer run took, according to the variables.
pub(crate) async fn held_around(wanted: &[Name], client: &Client) -> Option<Name> {
    let around = Around::of_process();
    if around.0.is_empty() {
        return None;
    }
    match around.nesting(wanted, &Here::of(client).await) {
        Nesting::Apart => None,
        Nesting::Within(_) => wanted.first().cloned(),
        Nesting::Across(name) => Some(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inside a run of these names and fences, inside others.
    fn within(name: &'static str, fences: &'static str, outer: &'static str) -> Around {
        Around::new(move |which| match which {
            NAME => Some(name.to_owned()),
            OWNER => Some("me".to_owned()),
            STORE_LABEL => Some("file:/locks".to_owned()),
            FENCES => Some(fences.to_owned()),
            OUTER => Some(outer.to_owned()),
            _ => None,
        })
    }

    fn here(label: &str) -> Here {
        Here { label: label.to_owned(), id: None }
    }

    fn names(text: &str) -> Vec<Name> {
        names::parse(text).unwrap()
    }

    fn owner(nesting: &Nesting<'_>) -> Option<String> {
        match nesting {
            Nesting::Within(outer) => Some(outer.owner.clone()),
            _ => None,
        }
    }

    const FURTHER: &str = r#"[{"store":"file:/locks","owner":"you","fences":{"x":3,"y":4}},
        {"store":"file:/other","owner":"they","fences":{"a":5}}]"#;

    #[test]
    fn only_names_that_a_run_around_has_on_that_store_are_joined() {
        let around = within(r"a,b\,c", r"a=1,b\,c=2", FURTHER);
        for (wanted, store, joined) in [
            ("a", "file:/locks", Some("me")),
            (r"b\,c,a", "file:/locks", Some("me")),
            ("b", "file:/locks", None),
            ("y,x", "file:/locks", Some("you")),
            ("a", "file:/other", Some("they")),
            ("x", "file:/other", None),
        ] {
            let nesting = around.nesting(&names(wanted), &here(store));
            assert_eq!(owner(&nesting).as_deref(), joined, "{wanted} on {store}");
            assert_eq!(nesting == Nesting::Apart, joined.is_none(), "{wanted} on {store}");
        }
        for (wanted, held) in [("a,z", "a"), ("a,x", "a"), ("w,y", "y")] {
            let across = Nesting::Across(names(held).remove(0));
            assert_eq!(around.nesting(&names(wanted), &here("file:/locks")), across, "{wanted}");
        }
    }

    #[test]
    fn a_store_is_known_by_other_names() {
        let around = Around::new(|which| match which {
            NAME | OWNER => Some("a".to_owned()),
            FENCES => Some("a=1".to_owned()),
            STORE_LABEL => Some("redis://localhost:6379".to_owned()),
            STORE_ID => Some("redis:1f/0/?".to_owned()),
            OUTER => {
                Some(r#"[{"store":"redis://x","store_id":"redis:2f/0/?","owner":"you","fences":{"b":2}}]"#.to_owned())
            }
            _ => None,
        });
        let joined = |name: &str, label: &str, id: Option<&str>| {
            let here = Here { label: label.to_owned(), id: id.map(Into::into) };
            owner(&around.nesting(&names(name), &here))
        };
        let address = "redis://127.0.0.1:6379";
        assert_eq!(joined("a", address, Some("redis:1f/0/?")).as_deref(), Some("a"));
        assert_eq!(joined("b", address, Some("redis:2f/0/?")).as_deref(), Some("you"));
        assert_eq!(
            joined("a", "redis://localhost:6379", Some("redis:3f/0/?")).as_deref(),
            Some("a"),
            "it was restarted"
        );
        assert_eq!(joined("a", "redis://localhost:6379", None).as_deref(), Some("a"));
        for other in [Some("redis:2f/0/?"), Some("redis:1f/0/?layout=plain"), Some(""), None] {
            assert_eq!(joined("a", address, other), None, "{other:?}");
        }
    }

    #[test]
    fn without_all_the_variables_there_is_no_run_around() {
        assert!(Around::new(|name| (name == NAME).then(|| "a".to_owned())).0.is_empty());
        assert!(Around::new(|name| (name == OUTER).then(|| FURTHER.to_owned())).0.is_empty());
        assert!(within("a,b", "a=1", FURTHER).0.is_empty());
        assert!(within("a", "a=first", FURTHER).0.is_empty());
        for outer in ["", "[", "{}", r#"[{"owner":"you"}]"#] {
            assert_eq!(within("a", "a=1", outer).0.len(), 1, "{outer}");
        }
    }

    #[test]
    fn one_that_joined_is_not_told_beside_the_one_that_it_joined() {
        let around = within("x", "x=3", r#"[{"store":"file:/locks","owner":"me","fences":{"x":3,"y":4}}]"#);
        let [joined, whole] = around.0.as_slice() else { panic!("{around:?}") };
        let told = |held: &Outer| -> Vec<Outer> { serde_json::from_str(&around.told_within(held)).unwrap_or_default() };
        assert_eq!(told(joined), std::slice::from_ref(whole));
        assert_eq!(told(whole), []);
        let another = Outer { owner: "you".into(), ..joined.clone() };
        assert_eq!(told(&another), std::slice::from_ref(whole));
        let later = Outer { fences: [("x".to_owned(), 9), ("y".to_owned(), 10)].into(), ..joined.clone() };
        assert_eq!(told(&later), std::slice::from_ref(whole), "another grant is another lock");
    }
}
