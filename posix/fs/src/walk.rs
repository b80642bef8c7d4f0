//! Paths that are followed, for callers that have no kernel to do so.
//!
//! A walk goes from a folder along the names of a path, as Linux's does. Each folder on the way is
//! asked whether the caller may search it, also the one of the last name. A symbolic link on the
//! way is replaced by its target and what is left of the path; of the last name, the call says
//! whether it is followed. A slash behind the last name has it followed in any case, and be a
//! folder. Up to 40 links are followed.
//!
//! A path may lead out of what is shown here: by `..` in the root, or by a symbolic link with an
//! absolute target. Only the front knows where the pool stands, so the walk ends there with
//! [`Leaves`]: where the path goes on, and how many links were followed. The front goes on with the
//! kernel, or, where the path comes back in, with [`At::after`] and the count: so the 40 hold
//! across the border. What it finds there is what the call was asked for: it makes the same call.
//!
//! A link of the kernel's may lead to a node here, whatever its path is, if it has one: that of an
//! open file below `/proc` does. The front says so ([`At::through`]). Where links are followed, the
//! call is about the node; else about the link, and ends with [`Leaves`], too.
//!
//! *Invariant*: what was followed is never followed again: a name that vanishes under the walk is
//! looked up again in the same folder. A walk takes no lock; what changes meanwhile is met before
//! or after the change. The mode of a folder may be that of the newest commit at the beginning.

use std::borrow::Cow;
use std::ops::Range;

use engram::{Found, Member};

use crate::asked::Asked;
use crate::caller::{Caller, SEARCH};
use crate::errno::{Errno, Result, gone_is_stale, name_of, refuse, refuse_at, shown_name};
use crate::fs::{Fs, Ino, LOOKS, Node, ROOT, gone_is_absent};
use crate::known::{KnownFolder, Moment};
use crate::stat::{NodeKind, Stat, kind_of};

/// So many symbolic links are followed at most, as by Linux.
pub const LINKS_MAX: u32 = 40;
/// The longest path that a call is given.
pub const PATH_BYTES_MAX: usize = 4095;

/// Where a path leads.
#[derive(Clone, Debug)]
pub struct Walked {
    /// The folder of the last name.
    pub parent: Ino,
    /// The last name; empty if the path leads to that folder itself.
    pub name: String,
    /// What is known of the node; `None` if nothing has that name.
    pub stat: Option<Stat>,
}

/// The node that a call is about.
#[derive(Clone, Copy, Debug)]
pub struct At<'p> {
    folder: Ino,
    /// `None`: the folder of this number itself, or the file.
    path: Option<&'p [u8]>,
    /// Whether the path is that of a link of the kernel's, which leads to the node of the number.
    is_link: bool,
    links: u32,
}

impl<'p> At<'p> {
    /// The node at a path from a folder; a path that begins with a slash begins at the pool's root.
    pub fn path(folder: Ino, path: &'p [u8]) -> Self {
        At { folder, path: Some(path), is_link: false, links: 0 }
    }

    /// The node of this number: of a file that is open, or of a folder.
    pub fn node(ino: Ino) -> Self {
        At { folder: ino, path: None, is_link: false, links: 0 }
    }

    /// A link of the kernel's at an absolute path, which leads to the node of this number.
    pub fn through(link: &'p [u8], ino: Ino) -> Self {
        At { folder: ino, path: Some(link), is_link: true, links: 0 }
    }

    /// The same, to which so many symbolic links have led outside of what is shown here.
    #[must_use]
    pub fn after(self, links: u32) -> Self {
        At { links, ..self }
    }

    /// The number, if it is no path here.
    pub(crate) fn number(&self) -> Option<Ino> {
        (self.is_link || self.path.is_none()).then_some(self.folder)
    }

    /// The same of a call that follows links, or does not: that is about a link of the kernel's.
    pub(crate) fn followed(&self, follow: bool) -> Answer<Option<Ino>> {
        if self.is_link && !follow { self.leaves() } else { Ok(self.number()) }
    }

    /// A link of the kernel's, which is where the call goes on.
    fn leaves<T>(&self) -> Answer<T> {
        let to = Beyond::Absolute(self.path.unwrap_or_default().to_vec());
        let leaves = Leaves { to, links: self.links, through_link: false, second: false };
        Err(Unanswered::Leaves(Box::new(leaves)))
    }
}

/// How a path goes on outside of what is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// From the kernel's root.
    Absolute(Vec<u8>),
    /// From the folder in which the pool's root stands.
    Above(Vec<u8>),
}

/// A path that leads out of what is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaves {
    /// How it goes on.
    pub to: Beyond,
    /// How many symbolic links were followed so far; with what was followed before.
    pub links: u32,
    /// Whether it came there through a link of this walk.
    pub through_link: bool,
    /// Whether it is the second path of a call that has two.
    pub second: bool,
}

/// Why a call is not answered here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// It fails.
    Refused(Errno),
    /// Its path leads elsewhere: whoever calls knows who answers there.
    Leaves(Box<Leaves>),
    /// A stage is to bring what it names ([`crate::expected`]): the front waits, and calls again.
    Expected,
}

impl From<Errno> for Unanswered {
    fn from(error: Errno) -> Self {
        Unanswered::Refused(error)
    }
}

impl From<engram::Error> for Unanswered {
    fn from(error: engram::Error) -> Self {
        Unanswered::Refused(error.into())
    }
}

impl Unanswered {
    /// The number of the error, if it is one.
    pub(crate) fn code(&self) -> Option<i32> {
        match self {
            Unanswered::Refused(error) => Some(error.code),
            Unanswered::Leaves(_) | Unanswered::Expected => None,
        }
    }
}

/// What a call is answered.
pub type Answer<T> = std::result::Result<T, Unanswered>;

/// What stands last in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    Name,
    Dot,
    DotDot,
    /// Nothing: the path is the root.
    Root,
}

/// A path that is being followed: the folder so far, and the rest.
pub(crate) struct Way<'p> {
    pub folder: KnownFolder,
    pub last: Last,
    /// Whether a slash follows the last name.
    pub slash: bool,
    path: Cow<'p, [u8]>,
    name: Range<usize>,
    links: u32,
    links_before: u32,
    moment: Moment,
}

/// Where the last name leads.
pub(crate) struct Reached<'p> {
    pub way: Way<'p>,
    /// `None`: nothing has that name.
    pub stat: Option<Stat>,
}

/// A node on the way.
enum Passed {
    Folder(Ino),
    Link(Vec<u8>),
    Other,
}

impl<'p> Way<'p> {
    /// The way from its first folder.
    fn begin(fs: &Fs, at: &At<'p>) -> Answer<Way<'p>> {
        let mut moment = fs.moment()?;
        let path = at.path.unwrap_or_default();
        let from = if path.first() == Some(&b'/') { ROOT } else { at.folder };
        let folder = fs.known_folder(from, &mut moment).map_err(stale_is_absent)?;
        Ok(Way {
            folder,
            last: Last::Root,
            slash: false,
            path: Cow::Borrowed(path),
            name: 0..0,
            links: at.links,
            links_before: at.links,
            moment,
        })
    }

    /// The last name.
    pub fn name(&self) -> &[u8] {
        &self.path[self.name.clone()]
    }

    /// Follows the path to the folder of its last name.
    fn go_to_last(&mut self, asked: &Asked<'_>) -> Answer<()> {
        let slashes = |path: &[u8], from: usize| {
            path[from..].iter().take_while(|byte| **byte == b'/').count() + from
        };
        let mut from = slashes(&self.path, 0);
        if from == self.path.len() {
            self.last = Last::Root;
            return Ok(());
        }
        loop {
            asked.caller().check(SEARCH, &self.folder.protection)?;
            let path = &self.path[..];
            let len = path[from..].iter().position(|byte| *byte == b'/');
            let end = len.map_or(path.len(), |len| from + len);
            let next = slashes(path, end);
            let last = match &path[from..end] {
                b"." => Last::Dot,
                b".." => Last::DotDot,
                _ => Last::Name,
            };
            if next == path.len() {
                (self.last, self.name, self.slash) = (last, from..end, next > end);
                return self.check_unexpected(asked.fs());
            }
            match last {
                Last::DotDot => self.up(asked.fs(), next)?,
                Last::Name => {
                    if let Some(target) = self.down(asked.fs(), from..end)? {
                        self.follow(&target, from..end, end)?;
                        from = slashes(&self.path, 0);
                        continue;
                    }
                }
                Last::Dot | Last::Root => {}
            }
            from = next;
        }
    }

    /// Has the front wait where a stage is to bring what has the last name. That is asked before
    /// the name is looked up: what is not on its way any more is found then.
    fn check_unexpected(&self, fs: &Fs) -> Answer<()> {
        match self.folder.expected {
            Some(list) if self.last == Last::Name && fs.has(list, self.folder.ino, self.name()) => {
                Err(Unanswered::Expected)
            }
            _ => Ok(()),
        }
    }

    /// Goes to the folder above; what is left of the path begins at `next`.
    fn up(&mut self, fs: &Fs, next: usize) -> Answer<()> {
        if self.folder.ino == ROOT {
            let rest = &self.path[next..];
            let rest = if rest.is_empty() { &b"."[..] } else { rest };
            return self.leaves(Beyond::Above(rest.to_vec()));
        }
        self.folder =
            fs.known_folder(self.folder.above, &mut self.moment).map_err(stale_is_absent)?;
        Ok(())
    }

    /// Goes into the folder of a name; the target, if it is a symbolic link.
    fn down(&mut self, fs: &Fs, name: Range<usize>) -> Answer<Option<Vec<u8>>> {
        let (parent, name) = (self.folder.ino, &self.path[name]);
        if let Some(folder) = fs.known_name(parent, name, &self.moment) {
            self.folder = folder;
            return Ok(None);
        }
        for look in 0.. {
            let mut target = None;
            let found = fs.find_folder(parent, name, &mut self.moment, |moment| {
                match fs.pass(parent, name)? {
                    Some(Passed::Folder(ino)) => fs.known_folder(ino, moment).map(Some),
                    Some(Passed::Link(leads)) => {
                        target = Some(leads);
                        Ok(None)
                    }
                    Some(Passed::Other) => refuse!(ENOTDIR, "{:?} is no folder", shown_name(name)),
                    None => refuse!(ENOENT, "there is no {:?} in this folder", shown_name(name)),
                }
            });
            match found {
                Ok(Some(folder)) => {
                    self.folder = folder;
                    return Ok(None);
                }
                Ok(None) => return Ok(target),
                // Another may have the name by now of what is gone since it was found.
                Err(error) if error.code == libc::ESTALE && look < LOOKS => {}
                Err(error) => return Err(error.into()),
            }
        }
        unreachable!("it looks until it finds what is there, or nothing")
    }

    /// Puts a link's target in place of its name, which `rest` follows.
    fn follow(&mut self, target: &[u8], name: Range<usize>, rest: usize) -> Answer<()> {
        self.links += 1;
        if self.links > LINKS_MAX {
            refuse_at!(
                ELOOP,
                "the path leads through more than {LINKS_MAX} symbolic links, at last {:?}",
                shown_name(&self.path[name])
            );
        }
        let path = [target, &self.path[rest..]].concat();
        if target.first() == Some(&b'/') {
            return self.leaves(Beyond::Absolute(path));
        }
        self.path = Cow::Owned(path);
        Ok(())
    }

    fn leaves<T>(&self, to: Beyond) -> Answer<T> {
        let through_link = self.links > self.links_before;
        let leaves = Leaves { to, links: self.links, through_link, second: false };
        Err(Unanswered::Leaves(Box::new(leaves)))
    }
}

/// What a walk has found is gone: its name is, too.
pub(crate) fn stale_is_absent(error: Errno) -> Errno {
    match error.code {
        libc::ESTALE => Errno::new(libc::ENOENT, error.message),
        _ => error,
    }
}

impl Asked<'_> {
    /// The way of a path, to the folder of its last name.
    pub(crate) fn way<'p>(&self, at: &At<'p>) -> Answer<Way<'p>> {
        if at.is_link {
            return at.leaves();
        }
        let len = at.path.map_or(0, <[u8]>::len);
        if len == 0 {
            refuse_at!(ENOENT, "an empty path leads nowhere");
        }
        // What links have made of a path may be longer.
        if len > PATH_BYTES_MAX && at.links == 0 {
            refuse_at!(ENAMETOOLONG, "a path of {len} bytes; {PATH_BYTES_MAX} fit");
        }
        let mut way = Way::begin(self.fs(), at)?;
        way.go_to_last(self)?;
        Ok(way)
    }

    /// Follows a way to its end: through a symbolic link of the last name, too, if `follow`.
    pub(crate) fn reach<'p>(&self, way: Way<'p>, follow: bool) -> Answer<Reached<'p>> {
        self.reach_by(way, follow, false)
    }

    /// The same. A last name that may be `made` is of no folder: a slash behind it is `EISDIR`.
    pub(crate) fn reach_by<'p>(
        &self,
        mut way: Way<'p>,
        follow: bool,
        made: bool,
    ) -> Answer<Reached<'p>> {
        let fs = self.fs();
        loop {
            match way.last {
                Last::Name => {}
                Last::DotDot => {
                    let end = way.path.len();
                    way.up(fs, end)?;
                    break;
                }
                Last::Dot | Last::Root => break,
            }
            if made && way.slash {
                refuse_at!(EISDIR, "{:?} is to be a file, no folder", shown_name(&way.path));
            }
            let stat = match fs.known_entry(way.folder.ino, way.name(), &way.moment) {
                Some(stat) => Some(stat),
                None => fs.seek(way.folder.ino, way.name())?,
            };
            if let Some(found) = &stat
                && found.kind == NodeKind::Symlink
                && (follow || way.slash)
            {
                match fs.target_of_link(found.ino) {
                    Ok(target) => {
                        let (name, rest) = (way.name.clone(), way.name.end);
                        way.follow(&target, name, rest)?;
                        way.go_to_last(self)?;
                    }
                    // It is gone since: what has the name by now?
                    Err(error) if error.code == libc::ESTALE => {}
                    Err(error) => return Err(error.into()),
                }
                continue;
            }
            if way.slash && stat.is_some_and(|stat| stat.kind != NodeKind::Folder) {
                refuse_at!(ENOTDIR, "{:?} is no folder", shown_name(way.name()));
            }
            return Ok(Reached { way, stat });
        }
        let stat = fs.stat(way.folder.ino).map_err(stale_is_absent)?;
        Ok(Reached { way, stat: Some(stat) })
    }

    /// What is known of a node; a symbolic link is followed, if `follow`.
    pub(crate) fn find(&self, at: &At<'_>, follow: bool) -> Answer<Stat> {
        if let Some(ino) = at.followed(follow)? {
            return Ok(self.fs().stat(ino)?);
        }
        let reached = self.reach(self.way(at)?, follow)?;
        match reached.stat {
            Some(stat) => Ok(stat),
            None => refuse_at!(ENOENT, "there is no {:?}", shown_name(reached.way.name())),
        }
    }
}

impl Fs {
    /// Follows a relative path from a folder, through symbolic links, also that of the last name.
    /// Nobody is asked for permission; the root has itself above it.
    ///
    /// A link with an absolute target leads out of what is shown here, and is `EXDEV`.
    pub fn walk(&self, from: Ino, path: &str) -> Result<Walked> {
        let root = Caller::default();
        let asked = self.asked_by(&root);
        let (mut from, mut links) = (from, 0);
        let mut rest = Cow::Borrowed(path.trim_matches('/').as_bytes());
        loop {
            if rest.is_empty() {
                let stat = self.stat(from)?;
                return Ok(Walked { parent: from, name: String::new(), stat: Some(stat) });
            }
            let mut way = match Way::begin(self, &At::path(from, &rest).after(links)) {
                Ok(way) => way,
                Err(why) => return Err(self.no_way(path, why)),
            };
            let reached = way.go_to_last(&asked).and_then(|()| asked.reach(way, true));
            match reached {
                Ok(Reached { way, stat }) => {
                    let name = match way.last {
                        Last::Name => name_of(way.name())?.to_owned(),
                        _ => String::new(),
                    };
                    return Ok(Walked { parent: way.folder.ino, name, stat });
                }
                Err(Unanswered::Leaves(leaves)) => match *leaves {
                    Leaves { to: Beyond::Above(above), links: so_far, .. } => {
                        (from, links, rest) = (ROOT, so_far, Cow::Owned(above));
                    }
                    leaves => return Err(self.no_way(path, Unanswered::Leaves(leaves.into()))),
                },
                Err(why) => return Err(self.no_way(path, why)),
            }
        }
    }

    /// Why a path that is to stay in the pool leads nowhere.
    fn no_way(&self, path: &str, why: Unanswered) -> Errno {
        match why {
            Unanswered::Refused(error) if error.code == libc::ELOOP => {
                let what = format!("{path:?} leads through more than {LINKS_MAX} symbolic links");
                Errno::new(libc::ELOOP, what)
            }
            Unanswered::Refused(error) => error,
            Unanswered::Expected => {
                let what = format!("{path:?} is on its way: wait for the stage that brings it");
                Errno::new(libc::EBUSY, what)
            }
            Unanswered::Leaves(leaves) => {
                let (Beyond::Absolute(to) | Beyond::Above(to)) = &leaves.to;
                let to = shown_name(to);
                let pool = self.namespace().pool_path().display();
                Errno::new(libc::EXDEV, format!("{path:?} leads to {to:?}, out of pool {pool}"))
            }
        }
    }

    /// The path of a node from the root on, with a slash before each name: of one with several
    /// names, by the first of them. `ESTALE` if it has none any more.
    pub fn path_of(&self, ino: Ino) -> Result<String> {
        match self.node(ino)? {
            Node::Shown(ino) => self.path_of_shown(ino),
            Node::Member(member) => {
                let path = self.namespace().path_of(member).map_err(gone_is_stale)?;
                Ok(format!("/{path}"))
            }
        }
    }

    /// The path of a name in a folder.
    pub fn path_in(&self, parent: Ino, name: &str) -> Result<String> {
        match self.path_of(parent)? {
            above if above == "/" => Ok(format!("/{name}")),
            above => Ok(format!("{above}/{name}")),
        }
    }

    /// The folder that a folder is in; of the root, itself.
    pub(crate) fn above(&self, gid: u64) -> Result<Ino> {
        Ok(match self.namespace().group(gid).map_err(gone_is_absent)?.parent {
            0 => ROOT,
            above => self.ino_of(Member::Group(above)),
        })
    }

    /// What has a name that stands amid a path: no more is looked up than that takes.
    fn pass(&self, parent: Ino, name: &[u8]) -> Result<Option<Passed>> {
        let name = name_of(name)?;
        let shown = match self.node(parent)? {
            Node::Member(Member::Group(gid)) => {
                match self.namespace().find(gid, name).map_err(gone_is_absent)? {
                    Some(Found::Group(gid)) => {
                        return Ok(Some(Passed::Folder(self.ino_of(Member::Group(gid)))));
                    }
                    Some(Found::Object(info)) if kind_of(&info)? == NodeKind::Symlink => {
                        return self.target_of(info.oid).map(|target| Some(Passed::Link(target)));
                    }
                    Some(Found::Object(_)) => return Ok(Some(Passed::Other)),
                    None => self.find_shown(parent, gid, name)?,
                }
            }
            _ => Some(self.lookup_shown(parent, name)?),
        };
        Ok(match shown {
            Some(stat) if stat.kind == NodeKind::Folder => Some(Passed::Folder(stat.ino)),
            Some(stat) if stat.kind == NodeKind::Symlink => {
                Some(Passed::Link(self.target_of_link(stat.ino)?))
            }
            Some(_) => Some(Passed::Other),
            None => None,
        })
    }

    /// Where a symbolic link leads that was found to be one.
    fn target_of_link(&self, ino: Ino) -> Result<Vec<u8>> {
        match self.node(ino)? {
            Node::Shown(ino) => self.readlink_shown(ino),
            Node::Member(Member::Object(oid)) => self.target_of(oid),
            Node::Member(Member::Group(_)) => refuse!(EINVAL, "a folder is no symbolic link"),
        }
    }
}
