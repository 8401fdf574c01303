//! What a command is told of its lock, and what a `run` inside a `run` makes of it.

use leasehold::{Fence, Guard, Name};

use crate::names;

const NAME: &str = "LEASEHOLD_NAME";
const FENCE: &str = "LEASEHOLD_FENCE";
const FENCES: &str = "LEASEHOLD_FENCES";
const OWNER: &str = "LEASEHOLD_OWNER";
const STORE_LABEL: &str = "LEASEHOLD_STORE_LABEL";

/// The variables of a command that runs under `guard`. All are always set: one of an outer `run` must not show through.
pub(crate) fn variables(guard: &Guard, store_label: &str) -> Vec<(&'static str, String)> {
    let (all, fences): (Vec<Name>, Vec<Fence>) = guard.fences().map(|(name, fence)| (name.clone(), fence)).unzip();
    let pair = |(name, fence): (&Name, &Fence)| format!("{}={fence}", names::join(std::slice::from_ref(name)));
    let pairs: Vec<String> = all.iter().zip(&fences).map(pair).collect();
    vec![
        (NAME, names::join(&all)),
        (FENCE, guard.fence().to_string()),
        (FENCES, pairs.join(",")),
        (OWNER, guard.owner().to_string()),
        (STORE_LABEL, store_label.to_owned()),
    ]
}

/// The `run` around this one.
#[derive(Debug)]
pub(crate) struct Outer {
    names: Vec<Name>,
    fences: Vec<String>,
    pub(crate) owner: String,
    store_label: String,
}

/// How the names that are wanted stand to those of the `run` around.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Nesting {
    /// It has none of them.
    Apart,
    /// It has all of them: they are joined.
    Within,
    /// It has this one, and not all: to wait for it would be to wait for oneself.
    Across(Name),
}

impl Outer {
    /// From the variables of this process.
    pub(crate) fn of_process() -> Option<Self> {
        Self::new(|name| std::env::var(name).ok())
    }

    fn new(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let names = names::parse(&variable(NAME)?).ok()?;
        let fences = variable(FENCES).map(|text| names::split(&text)).or_else(|| {
            let fence = variable(FENCE)?;
            Some(vec![format!("{}={fence}", names.first()?)])
        });
        let (owner, store_label) = (variable(OWNER)?, variable(STORE_LABEL)?);
        Some(Self { names, fences: fences.unwrap_or_default(), owner, store_label })
    }

    /// How `wanted` on that store stands to what it has.
    pub(crate) fn nesting(&self, wanted: &[Name], store_label: &str) -> Nesting {
        let has = |name: &&Name| self.store_label == store_label && self.names.contains(name);
        match wanted.iter().filter(has).count() {
            0 => Nesting::Apart,
            count if count == wanted.len() => Nesting::Within,
            _ => wanted.iter().find(has).map_or(Nesting::Apart, |name| Nesting::Across(name.clone())),
        }
    }

    /// Whether a grant is the one that it has.
    pub(crate) fn is_same_grant(&self, guard: &Guard) -> bool {
        guard.fences().all(|(name, fence)| self.fences.contains(&format!("{name}={fence}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outer(name: &str) -> Outer {
        let variable = |which: &str| match which {
            NAME => Some(name.to_owned()),
            OWNER => Some("me".to_owned()),
            STORE_LABEL => Some("file:/locks".to_owned()),
            FENCES => Some(r"a=1,b\,c=2".to_owned()),
            _ => None,
        };
        Outer::new(variable).unwrap()
    }

    #[test]
    fn only_names_that_the_outer_run_has_on_that_store_are_joined() {
        let wanted = |text| names::parse(text).unwrap();
        let outer = outer(r"a,b\,c");
        assert_eq!(outer.nesting(&wanted("a"), "file:/locks"), Nesting::Within);
        assert_eq!(outer.nesting(&wanted(r"b\,c,a"), "file:/locks"), Nesting::Within);
        assert_eq!(outer.nesting(&wanted("b"), "file:/locks"), Nesting::Apart);
        assert_eq!(outer.nesting(&wanted("a"), "file:/other"), Nesting::Apart);
        assert_eq!(outer.nesting(&wanted("a,z"), "file:/locks"), Nesting::Across(wanted("a").remove(0)));
        assert_eq!(outer.fences, ["a=1", "b,c=2"]);
    }

    #[test]
    fn without_all_the_variables_there_is_no_outer_run() {
        assert!(Outer::new(|name| (name == NAME).then(|| "a".to_owned())).is_none());
    }
}
