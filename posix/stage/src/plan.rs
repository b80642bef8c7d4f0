//! What a stage is to do: which trees, where to, how, and how fast.
//!
//! A plan is kept in the pool as text, so that another process can resume the stage:
//!
//! ```text
//! engram-stage 1
//! in
//! workers 2
//! verify written
//! existing refuse
//! sha256 no
//! owners yes
//! order found
//! awaited no
//! rate -
//! files -
//! from /pfs/case-7
//! to case-7
//! end
//! ```
//!
//! A path stands as in a [manifest](crate::manifest). The lines `from` and `to` come in pairs, and
//! behind one whose bytes are to lie on a device of the pool stands `on` and its number. An
//! order by a list has a line `first PATH` for each path of it, and a stage that waits for its turn
//! a line `slots PATH`. A plan without `end` was cut off.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use engram::{Error, Kind, Result};

use crate::inward::{Source, hidden_of};
use crate::log::Log;
use crate::manifest::{escaped, unescaped};
use crate::options::{Existing, Options, Order, Verify};
use crate::outward::Target;
use crate::sum::Sum;

const HEAD: &str = "engram-stage 1";

/// The trees that a stage brings, and the direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Into the pool.
    In(Vec<Source>),
    /// Out of it.
    Out(Vec<Target>),
}

/// What a stage is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The trees.
    pub work: Work,
    /// How they are brought.
    pub options: Options,
    /// So many bytes a second at first; `None`: as fast as it goes.
    pub bytes_per_second: Option<u64>,
    /// So many files a second at first.
    pub files_per_second: Option<u64>,
    /// The folder of [slots](crate::slots) at which the stage waits for its turn.
    pub slots: Option<PathBuf>,
}

/// What tells a pair of paths from others, for names that belong to it.
pub(crate) fn pair_key(from: &[u8], to: &[u8]) -> String {
    let both = [from, b"\0", to].concat();
    Sum::of(&both, false).xxh3_text()
}

/// A path outside, from the root, as text.
fn outside(path: &Path) -> Result<String> {
    let shown = path.display();
    let path = std::path::absolute(path).map_err(|error| {
        Error::new(Kind::Argument, format!("{shown:?} is no path of a file: {error}"))
    })?;
    path.into_os_string().into_string().map_err(|path| {
        let path = path.display();
        Error::new(
            Kind::InvalidName,
            format!("{path} is not UTF-8, and cannot be noted: stage the folder that it is in"),
        )
    })
}

impl Work {
    /// Each pair of paths, from where and where to; those outside are full.
    pub fn pairs(&self) -> Result<Vec<(String, String)>> {
        match self {
            Work::In(sources) => {
                let pair = |one: &Source| Ok((outside(&one.from)?, in_pool(&one.to)));
                sources.iter().map(pair).collect()
            }
            Work::Out(targets) => {
                let pair = |one: &Target| Ok((in_pool(&one.from), outside(&one.to)?));
                targets.iter().map(pair).collect()
            }
        }
    }

    /// How the names in the work folder begin of what is kept for each pair: sorted, each once.
    pub(crate) fn beginnings(&self) -> Result<BTreeSet<String>> {
        let pairs = self.pairs()?.into_iter();
        Ok(match self {
            Work::In(_) => pairs
                .map(|(from, to)| hidden_of(&pair_key(from.as_bytes(), to.as_bytes())))
                .collect(),
            Work::Out(_) => pairs.map(|(from, to)| Log::name(&from, Path::new(&to))).collect(),
        })
    }

    /// "in" or "out".
    pub fn word(&self) -> &'static str {
        match self {
            Work::In(_) => "in",
            Work::Out(_) => "out",
        }
    }
}

/// A path in a pool: without slashes at its ends.
fn in_pool(path: &str) -> String {
    path.trim_matches('/').to_owned()
}

impl Plan {
    /// A plan whose paths outside are full, so that it means the same wherever it is resumed.
    pub fn new(work: &Work, options: Options) -> Result<Plan> {
        let mut seen = HashSet::new();
        // What is said twice is done once.
        let mut once = |pair: &(String, String)| seen.insert(pair.clone());
        let pairs = work.pairs()?.into_iter();
        let work = match work {
            Work::In(sources) => {
                let devices = sources.iter().map(|one| one.device);
                let source = |((from, to), device): ((String, String), Option<u32>)| Source {
                    from: from.into(),
                    to,
                    device,
                };
                Work::In(pairs.zip(devices).filter(|(pair, _)| once(pair)).map(source).collect())
            }
            Work::Out(_) => {
                let target = |(from, to): (String, String)| Target { from, to: to.into() };
                Work::Out(pairs.filter(once).map(target).collect())
            }
        };
        Ok(Plan { work, options, bytes_per_second: None, files_per_second: None, slots: None })
    }

    /// The name that the stage has if it is given none: the same for the same trees.
    pub fn usual_name(&self) -> Result<String> {
        let pairs = self.work.pairs()?;
        let word = self.work.word();
        let mut all = word.to_owned();
        for (from, to) in &pairs {
            let _ = write!(all, "\0{from}\0{to}");
        }
        let inside = pairs.first().map(|(from, to)| if word == "in" { to } else { from });
        let last = inside.and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        // A name of a stage has an end.
        let last = &last[..last.floor_char_boundary(48)];
        let last = if last.is_empty() { "all" } else { last };
        let last = last.trim_start_matches('.');
        let sum = Sum::of(all.as_bytes(), false).xxh3_text();
        Ok(format!("{last}-{word}-{}", &sum[..12]))
    }

    /// What [`parse`](Plan::parse) reads.
    pub fn text(&self) -> Result<String> {
        let Options { workers, verify, sha256, existing, keep_owners, order, awaited, .. } =
            &self.options;
        let yes = |is: bool| if is { "yes" } else { "no" };
        let limit = |limit: Option<u64>| limit.map_or("-".to_owned(), |limit| limit.to_string());
        let mut text = format!(
            "{HEAD}\n{}\nworkers {workers}\nverify {}\nexisting {}\nsha256 {}\nowners {}\n\
             order {}\nawaited {}\nrate {}\nfiles {}\n",
            self.work.word(),
            verify.word(),
            existing.word(),
            yes(*sha256),
            yes(*keep_owners),
            order.word(),
            yes(*awaited),
            limit(self.bytes_per_second),
            limit(self.files_per_second),
        );
        // Writing to a string does not fail.
        if let Order::Listed { paths, .. } = order {
            for path in paths {
                let _ = writeln!(text, "first {}", escaped(path));
            }
        }
        for (place, (from, to)) in self.work.pairs()?.iter().enumerate() {
            let _ = writeln!(text, "from {}\nto {}", escaped(from), escaped(to));
            if let Work::In(sources) = &self.work
                && let Some(device) = sources[place].device
            {
                let _ = writeln!(text, "on {device}");
            }
        }
        if let Some(slots) = &self.slots {
            let _ = writeln!(text, "slots {}", escaped(&outside(slots)?));
        }
        text.push_str("end\n");
        Ok(text)
    }

    /// Reads a plan; `None`: it is none, or was cut off.
    pub fn parse(text: &str) -> Option<Plan> {
        // What is behind it is of a longer plan, over which this one was written.
        let mut lines = text.split_once("\nend\n")?.0.lines();
        if lines.next()? != HEAD {
            return None;
        }
        let is_in = match lines.next()? {
            "in" => true,
            "out" => false,
            _ => return None,
        };
        let mut options = Options::default();
        let (mut bytes_per_second, mut files_per_second, mut slots) = (None, None, None);
        let (mut listed, mut sources, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        let mut devices = Vec::new();
        for line in lines {
            let (key, value) = line.split_once(' ')?;
            match key {
                "workers" => options.workers = value.parse().ok()?,
                "verify" => options.verify = Verify::of_word(value)?,
                "existing" => options.existing = Existing::of_word(value)?,
                "sha256" => options.sha256 = value == "yes",
                "owners" => options.keep_owners = value == "yes",
                "awaited" => options.awaited = value == "yes",
                "order" => options.order = Order::of_word(value)?,
                "rate" => bytes_per_second = value.parse().ok(),
                "files" => files_per_second = value.parse().ok(),
                "slots" => slots = Some(PathBuf::from(unescaped(value)?)),
                "first" => listed.push(unescaped(value)?),
                "from" => sources.push(unescaped(value)?),
                "to" => {
                    targets.push(unescaped(value)?);
                    devices.push(None);
                }
                "on" => *devices.last_mut()? = Some(value.parse().ok()?),
                // Of a later Engram.
                _ => {}
            }
        }
        if let Order::Listed { paths, .. } = &mut options.order {
            *paths = listed;
        }
        if sources.len() != targets.len() {
            return None;
        }
        let pairs = sources.into_iter().zip(targets);
        let work = if is_in {
            let source = |((from, to), device)| Source { from: PathBuf::from(from), to, device };
            Work::In(pairs.zip(devices).map(source).collect())
        } else {
            Work::Out(pairs.map(|(from, to)| Target { from, to: PathBuf::from(to) }).collect())
        };
        Some(Plan { work, options, bytes_per_second, files_per_second, slots })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Plan, Work};
    use crate::inward::Source;
    use crate::options::{Existing, Options, Order, Verify};
    use crate::outward::Target;

    fn path() -> impl Strategy<Value = String> {
        "[a-c% \n\\\\]{1,6}(/[a-c ]{1,3})?".prop_filter("a name", |path| !path.trim().is_empty())
    }

    fn order() -> impl Strategy<Value = Order> {
        let listed = (prop::collection::vec(path(), 0..4), any::<bool>())
            .prop_map(|(paths, only)| Order::Listed { paths, only });
        prop_oneof![Just(Order::Found), Just(Order::Smallest), Just(Order::Largest), listed]
    }

    proptest! {
        #[test]
        fn what_is_kept_is_read(
            pairs in prop::collection::vec((path(), path()), 1..4),
            (is_in, sha256, keep_owners, awaited) in any::<(bool, bool, bool, bool)>(),
            order in order(),
            limits in any::<(Option<u64>, Option<u64>)>(),
            slots in prop::option::of(path()),
            device in any::<Option<u32>>(),
        ) {
            let outside = |path: String| std::path::PathBuf::from(format!("/x/{path}"));
            let work = if is_in {
                let source = |(from, to)| Source { device, ..Source::new(outside(from), to) };
                Work::In(pairs.into_iter().map(source).collect())
            } else {
                Work::Out(pairs.into_iter().map(|(from, to)| Target { from, to: outside(to) })
                    .collect())
            };
            let options = Options {
                verify: Verify::Readback,
                existing: Existing::Update,
                sha256,
                keep_owners,
                order,
                awaited,
                ..Options::default()
            };
            let mut plan = Plan::new(&work, options).unwrap();
            (plan.bytes_per_second, plan.files_per_second) = limits;
            plan.slots = slots.map(outside);
            let text = plan.text().unwrap();
            prop_assert_eq!(Plan::parse(&text), Some(plan.clone()));
            prop_assert_eq!(Plan::parse(&text[..text.len() - 1]), None);
            let name = plan.usual_name().unwrap();
            prop_assert!(!name.contains('/') && !name.starts_with('.'), "{}", name);
        }

        #[test]
        fn anything_is_read_or_is_nothing(text in any::<String>()) {
            let _ = Plan::parse(&format!("engram-stage 1\nin\n{text}end\n"));
        }
    }
}
