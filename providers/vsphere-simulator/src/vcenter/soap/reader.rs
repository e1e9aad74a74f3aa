//! Objects and properties as the session of a request can read them.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write as _;

use bowline_simulator::{Record, object};
use quick_xml::escape::escape;
use serde_json::json;

use super::collector::PropertySet;
use super::{Fault, Request, content, sessions};
use crate::vcenter::inventory::{Access, Reference};
use crate::vcenter::schema::{is_a, lookup, write_typed};
use crate::vcenter::simulator::{Session, State};
use crate::vcenter::xml::Element;

/// Reads objects for a request.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    state: &'a State,
    session: Option<&'a Session>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(state: &'a State, request: &Request) -> Reader<'a> {
        Reader { state, session: state.sessions.get(&request.session) }
    }

    /// Properties of an object; `None` if it does not exist.
    pub(super) fn object(self, reference: &Reference) -> Option<Cow<'a, Record>> {
        let computed = match reference.kind.as_str() {
            "ServiceInstance" => json!({"serverClock": self.state.now(), "content": content(self.state)}),
            "SessionManager" => {
                let current = self.session.map(|session| sessions::described(session, self.state));
                let all = [("currentSession", current), ("defaultLocale", Some(json!("en_US")))];
                all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<Record>().into()
            }
            "ContainerView" => {
                let view = self.session?.views.get(&reference.id)?;
                return Some(Cow::Owned(view.properties(&self.state.inventory)));
            }
            "PropertyCollector" | "ViewManager" | "SearchIndex" | "AuthorizationManager" => json!({}),
            _ => return self.state.inventory.get(reference).map(Cow::Borrowed),
        };
        Some(Cow::Owned(object(computed)))
    }

    /// Checks that a property can be read. Without a session, only the entry points and the lack of a session can be.
    pub(super) fn check(self, object: &Reference, path: &str) -> Result<(), Fault> {
        let property = (object.kind.as_str(), path);
        let is_public = matches!(property, ("ServiceInstance", "content") | ("SessionManager", "currentSession"));
        if !is_public && self.session.is_none() {
            return Err(Fault::not_authenticated(object));
        }
        if self.state.inventory.access(object) != Access::Full {
            return Err(Fault::no_permission(object));
        }
        let is_known = self.state.options.keyed_paths || !path.contains('[');
        if is_known { Ok(()) } else { Err(Fault::invalid_property(path)) }
    }
}

// ---- selection

impl Reader<'_> {
    /// Objects that a filter selects, each once.
    pub(super) fn select(self, filter: &Element) -> Result<VecDeque<Reference>, Fault> {
        let (mut found, mut known) = (VecDeque::new(), HashSet::new());
        let mut add = |object: &Reference| {
            if known.insert(object.clone()) {
                found.push_back(object.clone());
            }
        };
        for start in filter.all("objectSet") {
            let object = start.child("obj").and_then(Element::reference);
            let object = object.ok_or_else(|| Fault::invalid_argument("specSet"))?;
            self.object(&object).ok_or_else(|| Fault::not_found(&object))?;
            match start.flag("skip") {
                false => add(&object),
                true => self.check(&object, "")?,
            }
            self.traverse(object, start, &mut add)?;
        }
        Ok(found)
    }

    /// Follows the selections of an object set. A selection without a path refers to another one by its name.
    fn traverse<'b>(
        self,
        object: Reference,
        start: &'b Element,
        add: &mut impl FnMut(&Reference),
    ) -> Result<(), Fault> {
        let mut named = HashMap::new();
        collect_names(start, &mut named);
        let resolve =
            |spec: &'b Element| if is_traversal(spec) { Some(spec) } else { named.get(spec.text("name")).copied() };
        let (mut queue, mut visited) = (VecDeque::from([(object, start)]), HashSet::new());
        while let Some((object, holder)) = queue.pop_front() {
            let specs = holder.all("selectSet").filter_map(resolve);
            for spec in specs.filter(|spec| is_a(&object.kind, spec.text("type"))) {
                if !visited.insert((object.clone(), std::ptr::from_ref(spec))) {
                    continue;
                }
                let reached = self.follow(&object, spec.text("path"))?;
                reached.iter().filter(|_| !spec.flag("skip")).for_each(&mut *add);
                queue.extend(reached.into_iter().map(|reached| (reached, spec)));
            }
        }
        Ok(())
    }

    /// Objects that a property refers to. There are none if it cannot be read.
    fn follow(self, object: &Reference, path: &str) -> Result<Vec<Reference>, Fault> {
        let Some(record) = self.object(object).filter(|_| self.check(object, path).is_ok()) else {
            return Ok(Vec::new());
        };
        let (_, value) = lookup(&object.kind, &record, path).ok_or_else(|| Fault::invalid_property(path))?;
        let mut reached = value.map(Reference::all_in).unwrap_or_default();
        reached.retain(|object| self.state.inventory.access(object) != Access::NoView);
        Ok(reached)
    }
}

fn is_traversal(spec: &Element) -> bool {
    spec.child("path").is_some()
}

fn collect_names<'a>(holder: &'a Element, named: &mut HashMap<&'a str, &'a Element>) {
    for spec in holder.all("selectSet") {
        if is_traversal(spec) {
            named.insert(spec.text("name"), spec);
        }
        collect_names(spec, named);
    }
}

// ---- contents

impl Reader<'_> {
    /// Writes an object with its properties; `false` if it does not exist.
    pub(super) fn write(self, out: &mut String, object: &Reference, sets: &[PropertySet], name: &str) -> bool {
        let Some(record) = self.object(object) else { return false };
        let (mut found, mut missing, mut known) = (String::new(), String::new(), HashSet::new());
        let sets = sets.iter().filter(|set| is_a(&object.kind, &set.kind));
        for path in sets.flat_map(|set| &set.paths).filter(|path| known.insert(path.as_str())) {
            match self.check(object, path) {
                Err(fault) => missing.push_str(&fault.missing(path)),
                Ok(()) => write_property(&mut found, &object.kind, &record, path),
            }
        }
        let (kind, id) = (escape(&object.kind), escape(&object.id));
        let _ = write!(out, "<{name}><obj type=\"{kind}\">{id}</obj>{found}{missing}</{name}>");
        true
    }
}

/// Writes a property if it is set.
fn write_property(out: &mut String, kind: &str, record: &Record, path: &str) {
    if let Some((declared, Some(value))) = lookup(kind, record, path) {
        let _ = write!(out, "<propSet><name>{}</name>", escape(path));
        write_typed(out, "val", declared, value);
        out.push_str("</propSet>");
    }
}
