//! Parameters: values that are given beside a query's text, and stand in it as `:name`.
//!
//! A value takes its parameter's place before the text is parsed, so that it can stand wherever one
//! may be written, and is never taken for anything else. What is given and not asked for is
//! refused: it is a slip mostly.

use std::collections::BTreeMap;

use engram_base::error::Result;
use engram_base::fail;
use engram_columns::literal::Literal;

use super::lex::nearest_of;

/// What a parameter stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum Param {
    /// A value.
    One(Literal),
    /// A list of them, for `in` and `contains`.
    Many(Vec<Literal>),
}

/// Parameters by their names, without the colon.
pub type Params = BTreeMap<String, Param>;

/// Parameters, and which of them were asked for.
pub(super) struct Given<'p> {
    params: &'p Params,
    asked: Vec<&'p str>,
    /// Whether it does not matter what a parameter stands for.
    any: bool,
}

static NONE: Params = Params::new();
static SOME: Param = Param::One(Literal::Int(0));

impl<'p> Given<'p> {
    pub(super) fn new(params: &'p Params) -> Self {
        Given { params, asked: Vec::new(), any: false }
    }

    /// Some value for each parameter, whatever its name: for a look at the text alone.
    pub(super) fn any() -> Self {
        Given { params: &NONE, asked: Vec::new(), any: true }
    }

    /// What a parameter stands for.
    pub(super) fn take(&mut self, name: &str) -> Option<&'p Param> {
        if self.any {
            return Some(&SOME);
        }
        let (name, param) = self.params.get_key_value(name)?;
        self.asked.push(name);
        Some(param)
    }

    /// The names of all, for a message.
    pub(super) fn names(&self) -> String {
        let names = self.params.keys().take(8).map(|name| format!(":{name}"));
        names.collect::<Vec<_>>().join(" ")
    }

    /// Refuses what was not asked for.
    pub(super) fn check(&self) -> Result<()> {
        let unasked = self.params.keys().find(|name| !self.asked.contains(&name.as_str()));
        if let Some(name) = unasked {
            let near = nearest_of(name, self.asked.iter().copied());
            let near = near.map_or(String::new(), |near| format!(" (it has :{near})"));
            fail!(
                Query,
                "the query has no parameter :{name}{near}: write it where its value is to stand, \
                 or leave it out of params"
            );
        }
        Ok(())
    }
}
