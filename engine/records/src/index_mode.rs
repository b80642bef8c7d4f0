//! Modes: when an object's attributes come into the index, and what a commit tells it.

/// When an object's attributes are indexed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum IndexMode {
    /// In the object's own commit.
    #[default]
    Sync = 0,
    /// A little later, by the process that drains the queue; queries see the object at once all the
    /// same.
    Async = 1,
    /// Not at all: queries find the object by its built-in fields alone.
    None = 2,
}

impl IndexMode {
    /// The mode that a byte on media stands for.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(IndexMode::Sync),
            1 => Some(IndexMode::Async),
            2 => Some(IndexMode::None),
            _ => None,
        }
    }
}

/// What happened to an object, with the mode in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// It is new.
    New(IndexMode),
    /// Something that the index keeps of it is other now.
    Changed(IndexMode),
    /// It is deleted.
    Gone(IndexMode),
}

impl Touch {
    /// This and then another, as one; `None` where nothing is left of both.
    pub fn then(self, next: Touch) -> Option<Touch> {
        match (self, next) {
            (Touch::New(_), Touch::Gone(_)) => None,
            (Touch::New(_), Touch::Changed(mode) | Touch::New(mode)) => Some(Touch::New(mode)),
            (Touch::Changed(_) | Touch::Gone(_), next) => Some(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{IndexMode::Sync, Touch};

    #[test]
    fn of_two_touches_the_last_counts_and_what_came_and_went_never_was() {
        let (new, changed, gone) = (Touch::New(Sync), Touch::Changed(Sync), Touch::Gone(Sync));
        assert_eq!(new.then(changed), Some(new));
        assert_eq!(new.then(gone), None);
        assert_eq!(changed.then(changed), Some(changed));
        assert_eq!(changed.then(gone), Some(gone));
    }
}
