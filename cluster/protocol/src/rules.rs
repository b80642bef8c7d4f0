//! The rules that keep the invariants, each of which the simulation can switch off.

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A member answers only while its own clock says that its lease cannot have ended.
    Fencing,
    /// A member is struck only after its lease has ended.
    Patience,
    /// A manifest takes effect only where the name, the map and its maker are as they were seen.
    Guard,
    /// A node that comes back is another member: its parts count when they are entered again.
    Incarnations,
    /// A sealed part counts again only after its bytes were found to be those that were written.
    Wholeness,
    /// A manifest takes effect only while its maker's lease runs: its parts are not given back yet.
    Makers,
    /// A node enters itself only while its own lease runs.
    Entering,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Rule; 7] = [
        Rule::Fencing,
        Rule::Patience,
        Rule::Guard,
        Rule::Incarnations,
        Rule::Wholeness,
        Rule::Makers,
        Rule::Entering,
    ];
}

/// Which rules hold: all of them, but in tests that must find what one is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    off: Option<Rule>,
}

impl Rules {
    /// All rules.
    pub const ALL: Rules = Rules { off: None };

    /// All rules but one.
    #[cfg(feature = "faults")]
    pub fn without(rule: Rule) -> Rules {
        Rules { off: Some(rule) }
    }

    /// Whether a rule holds.
    pub(crate) fn has(self, rule: Rule) -> bool {
        self.off != Some(rule)
    }
}
