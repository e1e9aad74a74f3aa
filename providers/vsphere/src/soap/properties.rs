//! The PropertyCollector: filters that select properties of objects, and their results.

use super::{Element, ManagedObject, fault};

/// Objects of one type and the properties to read.
#[derive(Debug, Clone)]
pub(crate) struct PropertySet<'a> {
    pub kind: &'a str,
    pub paths: &'a [&'a str],
}

/// An object with the properties that were read.
#[derive(Debug, Clone)]
pub(crate) struct ObjectContent {
    pub object: ManagedObject,
    properties: Vec<(String, Element)>,
    missing: Vec<(String, String)>,
}

/// Returns a filter for these objects.
pub(crate) fn objects_filter<'a>(
    objects: impl IntoIterator<Item = &'a ManagedObject>,
    properties: &[PropertySet<'_>],
) -> Element {
    let objects = objects.into_iter().map(|object| Element::new("objectSet").with(object.to_element("obj")));
    filter(properties, objects)
}

/// Returns a filter for these machines, their hosts and resource pools, and all ancestors of these.
pub(crate) fn lineage_filter<'a>(
    machines: impl IntoIterator<Item = &'a ManagedObject>,
    properties: &[PropertySet<'_>],
) -> Element {
    let step = |name, kind, path| traversal(name, kind, path).with(selection("parents"));
    let machines = machines.into_iter().map(|machine| {
        Element::new("objectSet").with(machine.to_element("obj")).with_all([
            step("parents", "ManagedEntity", "parent"),
            // The parent of a VM in a vApp is empty.
            step("vapp", "VirtualMachine", "parentVApp"),
            step("host", "VirtualMachine", "runtime.host"),
            step("pool", "VirtualMachine", "resourcePool"),
        ])
    });
    filter(properties, machines)
}

/// Returns a filter for the objects of a view.
pub(crate) fn view_filter(view: &ManagedObject, properties: &[PropertySet<'_>]) -> Element {
    let object = Element::new("objectSet")
        .with(view.to_element("obj"))
        .with(Element::leaf("skip", "true"))
        .with(traversal("view", "ContainerView", "view"));
    filter(properties, [object])
}

/// Returns a filter for a folder and all folders and datacenters below it.
pub(crate) fn folders_filter(root: &ManagedObject, properties: &[PropertySet<'_>]) -> Element {
    let object = Element::new("objectSet")
        .with(root.to_element("obj"))
        .with(traversal("folders", "Folder", "childEntity").with(selection("folders")));
    filter(properties, [object])
}

fn filter(properties: &[PropertySet<'_>], objects: impl IntoIterator<Item = Element>) -> Element {
    let sets = properties.iter().map(|set| {
        let paths = set.paths.iter().map(|path| Element::leaf("pathSet", *path));
        Element::new("propSet")
            .with(Element::leaf("type", set.kind))
            .with(Element::leaf("all", "false"))
            .with_all(paths)
    });
    Element::new("specSet").with_all(sets).with_all(objects)
}

/// Returns a traversal from objects of a type along one property. The name lets selections refer to it.
fn traversal(name: &str, kind: &str, path: &str) -> Element {
    Element::new("selectSet")
        .attribute("xsi:type", "TraversalSpec")
        .with(Element::leaf("name", name))
        .with(Element::leaf("type", kind))
        .with(Element::leaf("path", path))
        .with(Element::leaf("skip", "false"))
}

fn selection(name: &str) -> Element {
    Element::new("selectSet").with(Element::leaf("name", name))
}

impl ObjectContent {
    /// Reads an element of a page; `None` if it has no reference.
    pub(crate) fn of(element: Element) -> Option<ObjectContent> {
        let object = ManagedObject::of(element.child("obj")?)?;
        let mut content = ObjectContent { object, properties: Vec::new(), missing: Vec::new() };
        for part in element.into_children() {
            match part.name() {
                "propSet" => content.properties.extend(property(part)),
                "missingSet" => content.missing.extend(missing(&part)),
                _ => {}
            }
        }
        Some(content)
    }

    /// Returns the value of a property; `None` if it is unset or could not be read.
    pub(crate) fn get(&self, path: &str) -> Option<&Element> {
        self.properties.iter().find(|(known, _)| known == path).map(|(_, value)| value)
    }

    /// Returns the text of a property; empty if it is unset.
    pub(crate) fn text(&self, path: &str) -> &str {
        self.get(path).map(Element::text).unwrap_or_default()
    }

    /// Returns the object that a property refers to.
    pub(crate) fn reference(&self, path: &str) -> Option<ManagedObject> {
        ManagedObject::of(self.get(path)?)
    }

    /// Returns path and fault of each property that could not be read.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        self.missing.iter().map(|(path, fault)| (path.as_str(), fault.as_str()))
    }

    /// Returns whether a property could not be read because of this fault.
    pub(crate) fn is_missing_with(&self, fault: &str) -> bool {
        self.missing.iter().any(|(_, known)| known == fault)
    }

    /// Returns the first property that could not be read, other than one that this version of the API does not have.
    pub(crate) fn unreadable(&self) -> Option<(&str, &str)> {
        self.missing().find(|(_, fault)| *fault != fault::code::INVALID_PROPERTY)
    }
}

fn property(set: Element) -> Option<(String, Element)> {
    let name = set.child_text("name")?.to_owned();
    Some((name, set.into_child("val")?))
}

fn missing(set: &Element) -> Option<(String, String)> {
    let fault = set.child("fault")?.child("fault").or(set.child("fault"))?;
    Some((set.child_text("path")?.to_owned(), fault.type_name().to_owned()))
}
