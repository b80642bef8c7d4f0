//! Scopes: who sees an object or a group of a namespace. Each scope has a realm of its own, so that
//! the kernel keeps out whom it does not concern.

/// Who sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Scope {
    /// The user whose it is, alone.
    Private = 0,
    /// The namespace's owner, and its group where the namespace's mode lets that write.
    #[default]
    Shared = 1,
    /// Everyone whom the namespace's mode admits, for reading; nobody changes it.
    Published = 2,
}

impl Scope {
    /// Every scope, the one whose names win first.
    pub const ALL: [Scope; 3] = [Scope::Private, Scope::Shared, Scope::Published];

    /// `"private"`, `"shared"` or `"published"`.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Private => "private",
            Scope::Shared => "shared",
            Scope::Published => "published",
        }
    }

    /// The scope of this name.
    pub fn parse(name: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.as_str() == name)
    }
}
