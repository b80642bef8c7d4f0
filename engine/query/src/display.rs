//! A query as text: the text is parsed to an equal tree.
//!
//! `And` and `Or` of one are that one; of none they are `true` and `not true`.

use std::fmt::{self, Display, Formatter, Write};

use super::words::is_bare;
use crate::ast::{Builtin, Comparison, Expr, Order, Query, QueryField, Test};
use engram_columns::literal::write_text;

/// How tightly what stands around an expression binds.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Precedence {
    Nothing,
    Or,
    And,
    Not,
}

impl Display for Query {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        if self.expr != Expr::All {
            write!(f, "{}", self.expr)?;
            gap = " ";
        }
        for (place, order) in self.order_by.iter().enumerate() {
            let before = if place == 0 { "order by" } else { "," };
            write!(f, "{}{before} {order}", std::mem::take(&mut gap))?;
        }
        if !self.order_by.is_empty() {
            gap = " ";
        }
        match self.limit {
            Some(limit) => write!(f, "{gap}limit {limit}"),
            None => Ok(()),
        }
    }
}

impl Display for Order {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.field, if self.descending { " desc" } else { "" })
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_expr(self, Precedence::Nothing, f)
    }
}

fn write_expr(expr: &Expr, around: Precedence, f: &mut Formatter<'_>) -> fmt::Result {
    match expr {
        Expr::All => f.write_str("true"),
        Expr::And(terms) => write_terms(terms, " and ", Precedence::And, "true", around, f),
        Expr::Or(terms) => write_terms(terms, " or ", Precedence::Or, "not true", around, f),
        Expr::Not(term) => {
            f.write_str("not ")?;
            write_expr(term, Precedence::Not, f)
        }
        Expr::Test(field, Test::Exists) => write!(f, "exists({field})"),
        Expr::Test(field, test) => write!(f, "{field} {test}"),
        Expr::Under(path) => {
            f.write_str("under(")?;
            write_text(path, f)?;
            f.write_char(')')
        }
    }
}

/// Parentheses stand wherever leaving them out would make another tree, an equivalent one too.
fn write_terms(
    terms: &[Expr],
    joint: &str,
    own: Precedence,
    none: &str,
    around: Precedence,
    f: &mut Formatter<'_>,
) -> fmt::Result {
    match terms {
        [] => return f.write_str(none),
        [only] => return write_expr(only, around, f),
        _ => {}
    }
    let apart = around >= own;
    f.write_str(if apart { "(" } else { "" })?;
    for (place, term) in terms.iter().enumerate() {
        f.write_str(if place == 0 { "" } else { joint })?;
        write_expr(term, own, f)?;
    }
    f.write_str(if apart { ")" } else { "" })
}

impl Display for QueryField {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            QueryField::Attr(key) => write_key(key, f),
            QueryField::GroupAttr(key) => {
                f.write_str("group.")?;
                write_key(key, f)
            }
            QueryField::Builtin(builtin) => write!(f, "@{}", builtin.name()),
        }
    }
}

impl Builtin {
    /// Its name in a query, without the `@`.
    pub fn name(self) -> &'static str {
        Builtin::ALL.iter().find(|(builtin, _)| *builtin == self).map_or("", |(_, name)| name)
    }
}

impl Display for Test {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Test::Compare(comparison, value) => write!(f, "{comparison} {value}"),
            Test::Between(low, high) => write!(f, "between {low} and {high}"),
            Test::In(values) => {
                f.write_str("in (")?;
                for (place, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if place == 0 { "" } else { ", " })?;
                }
                f.write_char(')')
            }
            Test::Contains(value) => write!(f, "contains {value}"),
            Test::StartsWith(text) => write_named("startswith ", text, f),
            Test::EndsWith(text) => write_named("endswith ", text, f),
            Test::Like(text) => write_named("like ", text, f),
            Test::Exists => f.write_str("exists"),
        }
    }
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Comparison::Eq => "=",
            Comparison::Ne => "!=",
            Comparison::Lt => "<",
            Comparison::Le => "<=",
            Comparison::Gt => ">",
            Comparison::Ge => ">=",
        })
    }
}

fn write_named(name: &str, text: &str, f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str(name)?;
    write_text(text, f)
}

fn write_key(key: &str, f: &mut Formatter<'_>) -> fmt::Result {
    if is_bare(key) { f.write_str(key) } else { write!(f, "`{}`", key.replace('`', "``")) }
}
