//! Large folders: a file opened in one, all of its names listed and looked at, and its renaming.

use std::path::Path;
use std::time::Instant;

use engram::{CreateOptions, Pool};

use crate::Result;
use crate::contestants::{Calls, Contestant, InPool};
use crate::files::Found;
use crate::store::timed;

/// What is measured.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Files in the small folder.
    pub few: u64,
    /// Files in the large one.
    pub many: u64,
    /// Files in the one that is listed.
    pub listed: u64,
    /// Files that are opened in a round.
    pub opens: u64,
    /// Rounds after one to warm up.
    pub rounds: u64,
}

const FEW: &str = "few";
const MANY: &str = "many";
/// The folder that is listed, which a pool keeps for mounts of it.
const LISTED: &str = "listed";

/// Measures in a pool that is left behind, and in `folder`.
pub fn measure(pool: &Path, folder: &str, plan: Plan) -> Result<String> {
    let size = 64 << 20;
    drop(Pool::create(pool, &CreateOptions { size, ..Default::default() })?);
    let all: [Box<dyn Contestant>; 2] =
        [Box::new(InPool::open(pool)?), Box::new(Calls::named(&format!("tmpfs={folder}"))?)];
    for who in &all {
        for (name, count) in [(FEW, plan.few), (MANY, plan.many), (LISTED, plan.listed)] {
            who.mkdir(name)?;
            let within = who.folder(name)?;
            (0..count).try_for_each(|number| within.create(&named(number)))?;
        }
    }
    let mut found = Found::default();
    for round in 0..=plan.rounds {
        let mut unused = Found::default();
        let found = if round == 0 { &mut unused } else { &mut found };
        for who in &all {
            opens(found, who.as_ref(), plan, round)?;
            lists(found, who.as_ref(), plan.listed)?;
            renames(found, who.as_ref(), round)?;
        }
    }
    Ok(found.json())
}

/// As the null file system names those of its folder.
fn named(number: u64) -> String {
    format!("file-{number:08}")
}

/// Opens files here and there in the small folder, and in the large one.
fn opens(found: &mut Found, who: &dyn Contestant, plan: Plan, round: u64) -> Result<()> {
    for (name, count) in [(FEW, plan.few), (MANY, plan.many)] {
        let within = who.folder(name)?;
        let open = |turn: u64| {
            let number = (turn + round * plan.opens).wrapping_mul(0x9e37_79b9) % count;
            within.open(&named(number))
        };
        let taken = timed(plan.opens, || (0..plan.opens).try_for_each(open))?;
        found.add("open", &format!("{}, {name}", who.name()), taken);
    }
    Ok(())
}

/// Lists a folder, and looks at each of its files.
fn lists(found: &mut Found, who: &dyn Contestant, count: u64) -> Result<()> {
    let within = who.folder(LISTED)?;
    found.add("list", &who.name(), timed(count, || all_listed(within.as_ref(), count))?);
    Ok(())
}

fn all_listed(within: &dyn Contestant, count: u64) -> Result<()> {
    let listed = within.list()?;
    if listed != count {
        return Err(format!("{listed} of {count} files were listed").into());
    }
    Ok(())
}

/// Renames the folder that is listed, and makes a file, which is one commit.
fn renames(found: &mut Found, who: &dyn Contestant, round: u64) -> Result<()> {
    let there = timed(2, || {
        who.rename(LISTED, "renamed")?;
        who.rename("renamed", LISTED)
    });
    found.add("rename", &who.name(), there?);
    let count = 20;
    let name = |number: u64| format!("commit-{round}-{number}");
    let make = || (0..count).try_for_each(|number| who.create(&name(number)));
    found.add("commit", &who.name(), timed(count, make)?);
    Ok(())
}

/// Lists a folder twice, and looks at each of its files: seconds for each file.
pub fn list(folder: &str, count: u64) -> Result<String> {
    let within = Calls::named(&format!("a folder={folder}"))?;
    let mut taken = [0.0; 2];
    for taken in &mut taken {
        let start = Instant::now();
        all_listed(&within, count)?;
        *taken = start.elapsed().as_secs_f64() / count as f64;
    }
    Ok(format!("{{\"first\": {:e}, \"again\": {:e}}}", taken[0], taken[1]))
}
