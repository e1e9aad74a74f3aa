//! The property collector: filters that select objects and properties, and pages of results.
//!
//! ```text
//!  specSet ──► objects: objectSet and the objects that its selectSets reach ──► Pages ──► contents of the objects of one page
//!         └──► propSets: paths for each type ─────────────────────────────────────┘
//! ```

use std::collections::VecDeque;

use bowline_simulator::Record;

use super::reader::Reader;
use super::{Fault, Outcome, Request, Returned};
use crate::vcenter::inventory::Reference;
use crate::vcenter::schema::{is_a, lookup, names, write_typed};
use crate::vcenter::simulator::State;
use crate::vcenter::xml::Element;

/// Objects that are not returned yet.
pub(in crate::vcenter) struct Pages {
    filters: Vec<Filter>,
    page: usize,
}

/// Objects that a filter selects, and the properties to return.
struct Filter {
    objects: VecDeque<Reference>,
    sets: Vec<PropertySet>,
}

/// Properties of the objects of one type.
pub(super) struct PropertySet {
    pub(super) kind: String,
    pub(super) paths: Vec<String>,
}

// ---- methods

pub(super) fn retrieve(state: &State, request: &Request) -> Outcome {
    let reader = Reader::new(state, request);
    Ok(Returned::Xml(Pages::of(reader, request)?.take(reader, usize::MAX, "returnval")))
}

pub(super) fn retrieve_page(state: &mut State, request: &Request) -> Outcome {
    let mut pages = Pages::of(Reader::new(state, request), request)?;
    let wanted = request.arguments.child("options").map(|options| options.text("maxObjects").parse::<usize>());
    let wanted = wanted.and_then(Result::ok).filter(|wanted| *wanted > 0);
    pages.page = wanted.unwrap_or(state.options.page).clamp(1, state.options.max_page.max(1));
    let page = page(state, request, pages);
    Ok(if page.is_empty() { Returned::Nothing } else { returned(&page) })
}

pub(super) fn next_page(state: &mut State, request: &Request) -> Outcome {
    let pages = take_pages(state, request)?;
    // There is always a result, even if all objects were deleted meanwhile.
    Ok(returned(&page(state, request, pages)))
}

pub(super) fn cancel(state: &mut State, request: &Request) -> Outcome {
    take_pages(state, request).map(|_| Returned::Nothing)
}

/// Reads one property of the object that receives the call. Clients such as pyvmomi use it.
pub(super) fn fetch(state: &State, request: &Request) -> Outcome {
    let (reader, this, path) = (Reader::new(state, request), &request.this, request.arguments.text("prop"));
    let record = reader.object(this).ok_or_else(|| Fault::not_found(this))?;
    reader.check(this, path)?;
    let (declared, value) = lookup(&this.kind, &record, path).ok_or_else(|| Fault::invalid_property(path))?;
    Ok(value.map_or(Returned::Nothing, |value| {
        let mut xml = String::new();
        write_typed(&mut xml, "returnval", declared, value);
        Returned::Xml(xml)
    }))
}

/// Pages of a token. A token belongs to its session, and is valid once.
fn take_pages(state: &mut State, request: &Request) -> Result<Pages, Fault> {
    let session = state.sessions.get_mut(&request.session);
    let pages = session.and_then(|session| session.pages.remove(request.arguments.text("token")));
    pages.ok_or_else(|| Fault::invalid_argument("token"))
}

/// Returns the content of a page, and keeps the others for the session.
fn page(state: &mut State, request: &Request, mut pages: Pages) -> String {
    let objects = pages.take(Reader::new(state, request), pages.page, "objects");
    if pages.filters.iter().all(|filter| filter.objects.is_empty()) {
        return objects;
    }
    let token = state.ids.uuid();
    if let Some(session) = state.sessions.get_mut(&request.session) {
        session.pages.insert(token.clone(), pages);
    }
    format!("<token>{token}</token>{objects}")
}

fn returned(page: &str) -> Returned {
    Returned::Xml(format!("<returnval>{page}</returnval>"))
}

// ---- filters

impl Pages {
    fn of(reader: Reader<'_>, request: &Request) -> Result<Pages, Fault> {
        let filters = request.arguments.all("specSet").map(|spec| {
            let sets = spec.all("propSet").map(PropertySet::of).collect::<Result<Vec<_>, _>>()?;
            let mut objects = reader.select(spec)?;
            objects.retain(|object| sets.iter().any(|set| is_a(&object.kind, &set.kind)));
            Ok(Filter { objects, sets })
        });
        Ok(Pages { filters: filters.collect::<Result<_, _>>()?, page: 0 })
    }

    /// Contents of the next objects, as elements of this name. Objects that were deleted meanwhile are left out.
    fn take(&mut self, reader: Reader<'_>, limit: usize, name: &str) -> String {
        let (mut out, mut taken) = (String::new(), 0);
        for filter in &mut self.filters {
            while taken < limit
                && let Some(object) = filter.objects.pop_front()
            {
                taken += usize::from(reader.write(&mut out, &object, &filter.sets, name));
            }
        }
        out
    }
}

impl PropertySet {
    fn of(set: &Element) -> Result<PropertySet, Fault> {
        let kind = set.text("type").to_owned();
        let mut paths: Vec<_> = set.texts("pathSet").into_iter().map(str::to_owned).collect();
        if set.flag("all") {
            paths = names(&kind).into_iter().map(str::to_owned).collect();
        }
        match paths.iter().find(|path| lookup(&kind, &Record::new(), path).is_none()) {
            Some(unknown) => Err(Fault::invalid_property(unknown)),
            None => Ok(PropertySet { kind, paths }),
        }
    }
}
