//! Queries: parsed once, asked of a namespace, with the interpreter let go; and what their results
//! are told from, many objects at a time.

use engram::query::ast::{Expr, Literal, QueryField};
use engram::query::params::{Param, Params};
use engram::query::{ast, parse, parse_with};
use engram::{Consistency, Figure, Gid, IndexSettings, Kind, Oid, QueryOptions};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::array::ObjectInfo;
use crate::error::{Result, argument};
use crate::explanation::Explanation;
use crate::group::{Found, facts};
use crate::index::settings_of;
use crate::namespace::Namespace;

/// A query, and how it is to be answered.
#[pyclass(frozen, module = "engram._engram")]
pub struct Query {
    query: ast::Query,
    options: QueryOptions,
}

#[pymethods]
impl Query {
    /// Parses a query. An order, a limit or an offset that is given beside it stands in the place
    /// of its own.
    #[new]
    #[pyo3(signature = (text, order_by = None, limit = None, eventual = false, threads = None,
                        merge = false, brute_force = false, offset = None, params = None))]
    #[allow(clippy::too_many_arguments)] // as the package has them
    fn new(
        text: &Bound<'_, PyString>,
        order_by: Option<&Bound<'_, PyString>>,
        limit: Option<u64>,
        eventual: bool,
        threads: Option<usize>,
        merge: bool,
        brute_force: bool,
        offset: Option<u64>,
        params: Option<Vec<(String, Given)>>,
    ) -> Result<Self> {
        let params = params.unwrap_or_default().into_iter();
        let params: Params = params.map(|(name, given)| (name, given.into())).collect();
        let mut query = parse_with(plain(text)?, &params)?;
        if let Some(order_by) = order_by {
            let order_by = plain(order_by)?;
            match &mut query.totals {
                None => query.order_by = ordering(order_by)?,
                Some(totals) => {
                    let measures = ast::Query {
                        expr: Expr::All,
                        totals: Some(ast::Totals { order: Vec::new(), ..totals.clone() }),
                        ..ast::Query::default()
                    };
                    let ordered = parse(&format!("{measures} order by {order_by}"))?;
                    totals.order = ordered.totals.map(|totals| totals.order).unwrap_or_default();
                }
            }
        }
        query.limit = limit.or(query.limit);
        query.offset = offset.unwrap_or(query.offset);
        let ordered = query.totals.as_ref().is_some_and(|totals| !totals.order.is_empty());
        if query.offset > 0 && query.order_by.is_empty() && !ordered {
            return Err(argument(format!(
                "offset {} counts in an order, and there is none: give order_by, such as \
                 order_by=\"@path\"",
                query.offset
            )));
        }
        let consistency = if eventual { Consistency::Eventual } else { Consistency::Strong };
        let options =
            QueryOptions { consistency, threads, brute_force, merge, ..QueryOptions::default() };
        Ok(Query { query, options })
    }

    /// The same with hints for the index's layout, as a dict: `split_on` and `split_threshold`.
    fn hinted(&self, hints: &Bound<'_, PyDict>) -> Result<Self> {
        let IndexSettings { split_on, split_threshold, .. } = settings_of(hints)?;
        let options = QueryOptions { split_on, split_threshold, ..self.options.clone() };
        options.check()?;
        Ok(Query { query: self.query.clone(), options })
    }

    /// The query in its own language.
    #[getter]
    fn text(&self) -> String {
        self.query.to_string()
    }

    /// Whether it gives figures, and no objects.
    #[getter]
    fn is_of_totals(&self) -> bool {
        self.query.totals.is_some()
    }

    /// How many of the first are left out, and how many come after them at most.
    #[getter]
    fn part(&self) -> (u64, Option<u64>) {
        (self.query.offset, self.query.limit)
    }

    /// The same query, of all that come before the end of its part.
    fn whole(&self) -> Self {
        let limit = self.query.last();
        let query = ast::Query { limit, offset: 0, ..self.query.clone() };
        Query { query, options: self.options.clone() }
    }

    /// The figures that it gives of the objects below a group: what each column is, and the rows.
    /// An instant is a pair of the days and the ns of the day.
    #[allow(clippy::type_complexity)] // as the stubs tell it
    fn totals<'py>(
        &self,
        py: Python<'py>,
        namespace: &Namespace,
        group: Gid,
    ) -> Result<(Vec<String>, Vec<Bound<'py, PyTuple>>)> {
        let (engine, options) = (namespace.engine(), self.below(namespace, group));
        rows_of(py, py.detach(|| engine.query_totals(&self.query, &options))?)
    }

    /// The same of what lies below groups of several namespaces.
    #[allow(clippy::type_complexity, clippy::needless_pass_by_value)] // as the stubs tell it
    fn totals_of<'py>(
        &self,
        py: Python<'py>,
        groups: Vec<(PyRef<'py, Namespace>, Gid)>,
    ) -> Result<(Vec<String>, Vec<Bound<'py, PyTuple>>)> {
        let asked = groups
            .iter()
            .map(|(namespace, group)| (namespace.engine(), self.below(namespace, *group)));
        let asked: Vec<_> = asked.collect();
        rows_of(py, py.detach(|| engram::totals_of_several(&asked, &self.query))?)
    }

    /// What it names: 0 and an attribute's key, 1 and the key of a group's, 2 and a built-in field;
    /// each once, as they come.
    #[getter]
    fn fields(&self) -> Vec<(u8, String)> {
        let mut found = Vec::new();
        fields_of(&self.query.expr, &mut found);
        for order in &self.query.order_by {
            add(&order.field, &mut found);
        }
        if let Some(totals) = &self.query.totals {
            let measured = totals.measures.iter().filter_map(|measure| measure.field.as_ref());
            totals.by.iter().chain(measured).for_each(|field| add(field, &mut found));
        }
        found
    }

    /// The OIDs of the objects below a group that it finds.
    fn oids<'py>(
        &self,
        py: Python<'py>,
        namespace: &Namespace,
        group: Gid,
    ) -> Result<Bound<'py, PyArray1<u64>>> {
        let (engine, options) = (namespace.engine(), self.below(namespace, group));
        let answer = py.detach(|| engine.query(&self.query, &options))?;
        Ok(PyArray1::from_vec(py, answer.oids))
    }

    /// The objects that it finds, in their order: the path of each, the bytes by which it is
    /// ordered among those of other namespaces, and its OID.
    fn keyed<'py>(
        &self,
        py: Python<'py>,
        namespace: &Namespace,
        group: Gid,
    ) -> Result<Vec<(String, Bound<'py, PyBytes>, Oid)>> {
        let (engine, options) = (namespace.engine(), self.below(namespace, group));
        let found = py.detach(|| engine.query_keyed(&self.query, &options))?;
        let told =
            |hit: engram::query::answer::Keyed| (hit.path, PyBytes::new(py, &hit.key), hit.oid);
        Ok(found.into_iter().map(told).collect())
    }

    /// How many objects it finds.
    fn count(&self, py: Python<'_>, namespace: &Namespace, group: Gid) -> Result<u64> {
        let (engine, options) = (namespace.engine(), self.below(namespace, group));
        Ok(py.detach(|| engine.query_count(&self.query, &options))?)
    }

    /// How many attributes they have in all.
    fn count_attributes(&self, py: Python<'_>, namespace: &Namespace, group: Gid) -> Result<u64> {
        let (engine, options) = (namespace.engine(), self.below(namespace, group));
        Ok(py.detach(|| engine.query_count_attributes(&self.query, &options))?)
    }

    /// The keys of their attributes in byte order, each with how many of them have it.
    fn attribute_keys(
        &self,
        py: Python<'_>,
        namespace: &Namespace,
        group: Gid,
    ) -> Result<Vec<(String, u64)>> {
        let (engine, options) = (namespace.engine(), self.below(namespace, group));
        Ok(py.detach(|| engine.query_attribute_keys(&self.query, &options))?)
    }

    /// How it is answered.
    fn explain(&self, py: Python<'_>, namespace: &Namespace, group: Gid) -> Result<Explanation> {
        let (engine, options) = (namespace.engine(), self.below(namespace, group));
        Ok(py.detach(|| engine.explain(&self.query, &options))?.into())
    }

    fn __repr__(&self) -> String {
        format!("<engram.Query {:?}>", self.query.to_string())
    }
}

impl Query {
    /// The query, and how it is asked of what is below a group.
    pub fn asked(&self, namespace: &Namespace, group: Gid) -> (&ast::Query, QueryOptions) {
        (&self.query, self.below(namespace, group))
    }

    fn below(&self, namespace: &Namespace, group: Gid) -> QueryOptions {
        let root = (group != namespace.root_gid()).then_some(group);
        QueryOptions { root, ..self.options.clone() }
    }
}

/// What is given for a parameter.
#[derive(FromPyObject)]
enum Given {
    Text(String),
    Int(i64),
    Big(u64),
    Float(f64),
    Many(Vec<Given>),
}

impl Given {
    fn literals(self) -> Vec<Literal> {
        match self {
            Given::Text(text) => vec![Literal::Text(text)],
            Given::Int(value) => vec![Literal::Int(value)],
            Given::Big(value) => vec![Literal::Big(value)],
            Given::Float(value) => vec![Literal::Float(value)],
            Given::Many(all) => all.into_iter().flat_map(Given::literals).collect(),
        }
    }
}

impl From<Given> for Param {
    fn from(given: Given) -> Self {
        let is_list = matches!(given, Given::Many(_));
        let mut literals = given.literals();
        if is_list || literals.len() != 1 {
            Param::Many(literals)
        } else {
            Param::One(literals.remove(0))
        }
    }
}

/// What each column is, and the rows.
#[allow(clippy::type_complexity)] // as the stubs tell it
fn rows_of(
    py: Python<'_>,
    answer: engram::TotalsAnswer,
) -> Result<(Vec<String>, Vec<Bound<'_, PyTuple>>)> {
    let mut rows = Vec::with_capacity(answer.rows.len());
    for row in answer.rows {
        let row = row.into_iter().map(|figure| told(py, figure)).collect::<PyResult<Vec<_>>>()?;
        rows.push(PyTuple::new(py, row)?);
    }
    Ok((answer.columns, rows))
}

/// A figure as Python has it.
fn told(py: Python<'_>, figure: Option<Figure>) -> PyResult<Bound<'_, PyAny>> {
    const DAY: i128 = 86_400_000_000_000;
    Ok(match figure {
        None => py.None().into_bound(py),
        Some(Figure::Int(value)) => value.into_pyobject(py)?.into_any(),
        Some(Figure::Float(value)) => value.into_pyobject(py)?.into_any(),
        Some(Figure::Text(text)) => text.into_pyobject(py)?.into_any(),
        Some(Figure::Time(ns)) => {
            (ns.div_euclid(DAY), ns.rem_euclid(DAY)).into_pyobject(py)?.into_any()
        }
    })
}

fn plain<'a>(text: &'a Bound<'_, PyString>) -> Result<&'a str> {
    text.to_str().map_err(|_| {
        engram::Error::new(
            Kind::Query,
            format!("the query {text:?} has no UTF-8: leave the lone surrogates out"),
        )
        .into()
    })
}

/// What stands after `order by`.
fn ordering(text: &str) -> Result<Vec<ast::Order>> {
    let query = parse(&format!("order by {text}"))?;
    if query.limit.is_some() {
        return Err(argument(format!("order_by {text:?} has a limit: give it as limit=")));
    }
    Ok(query.order_by)
}

fn add(field: &QueryField, found: &mut Vec<(u8, String)>) {
    let named = match field {
        QueryField::Attr(key) | QueryField::Part(key, _) => (0, key.clone()),
        QueryField::GroupAttr(key) | QueryField::GroupPart(key, _) => (1, key.clone()),
        QueryField::Builtin(builtin) => (2, builtin.name().to_owned()),
    };
    if !found.contains(&named) {
        found.push(named);
    }
}

fn fields_of(expr: &Expr, found: &mut Vec<(u8, String)>) {
    match expr {
        Expr::All | Expr::Under(_) => {}
        Expr::And(all) | Expr::Or(all) => all.iter().for_each(|e| fields_of(e, found)),
        Expr::Not(inner) => fields_of(inner, found),
        Expr::Test(field, _) => add(field, found),
    }
}

/// What the handles of objects are made of; None for those that are gone.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // as PyO3 hands it over
pub fn handles<'py>(
    py: Python<'py>,
    namespace: &Namespace,
    oids: PyReadonlyArray1<'_, u64>,
) -> Result<Vec<Option<Found<'py>>>> {
    each(&oids, |oid| namespace.engine().object(oid))?
        .into_iter()
        .map(|info| info.map(|i| facts(py, engram::Found::Object(i))).transpose())
        .collect()
}

/// All that is known of each object; None for those that are gone.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // as PyO3 hands it over
pub fn object_infos(
    py: Python<'_>,
    namespace: &Namespace,
    oids: PyReadonlyArray1<'_, u64>,
) -> Result<Vec<Option<ObjectInfo>>> {
    each(&oids, |oid| namespace.engine().object(oid))?
        .into_iter()
        .map(|info| info.map(|i| ObjectInfo::new(py, i)).transpose())
        .collect()
}

/// The names of objects, as of one commit; None for those that are gone.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // as PyO3 hands it over
pub fn names_of(
    py: Python<'_>,
    namespace: &Namespace,
    oids: PyReadonlyArray1<'_, u64>,
) -> Result<Vec<Option<String>>> {
    let (engine, oids) = (namespace.engine(), oids.as_array().to_vec());
    Ok(py.detach(|| engine.names_of(&oids))?)
}

/// The paths of objects, as of one commit; None for those that are gone.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // as PyO3 hands it over
pub fn paths_of(
    py: Python<'_>,
    namespace: &Namespace,
    oids: PyReadonlyArray1<'_, u64>,
) -> Result<Vec<Option<String>>> {
    let (engine, oids) = (namespace.engine(), oids.as_array().to_vec());
    Ok(py.detach(|| engine.paths_of(&oids))?)
}

/// What `look` finds of each object; None where it is gone.
pub fn each<T>(
    oids: &PyReadonlyArray1<'_, u64>,
    look: impl Fn(Oid) -> engram::Result<T>,
) -> Result<Vec<Option<T>>> {
    let oids = oids.as_array();
    let found = oids.iter().map(|oid| match look(*oid) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    });
    found.collect()
}
