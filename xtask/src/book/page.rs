//! One page: its HTML, sections and links.

use std::collections::BTreeMap;

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// A rendered page.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// Text of the first heading.
    pub(super) title: String,
    pub(super) html: String,
    pub(super) sections: Vec<Section>,
    /// Targets of links and pictures as in the source.
    pub(super) links: Vec<String>,
}

/// A heading and the text up to the next one.
#[derive(Debug, Default)]
pub(super) struct Section {
    pub(super) level: u8,
    pub(super) heading: String,
    pub(super) anchor: String,
    pub(super) text: String,
}

impl Page {
    pub(super) fn render(text: &str) -> Page {
        let events: Vec<_> = Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH).collect();
        let sections = sections(&events);
        let links = events.iter().filter_map(target).map(ToString::to_string).collect();
        let mut anchors = sections.iter().filter(|section| section.level > 0).map(|section| section.anchor.clone());
        let events = events.into_iter().map(|event| rewritten(event, &mut anchors));
        let mut html = String::new();
        html::push_html(&mut html, events);
        // Wide tables scroll on their own.
        let html = html.replace("<table>", "<div class=\"table\"><table>").replace("</table>", "</table></div>");
        let title = sections.iter().find(|section| section.level > 0).map(|section| section.heading.clone());
        Page { title: title.unwrap_or_default(), html, sections, links }
    }

    pub(super) fn has_anchor(&self, anchor: &str) -> bool {
        let id = format!("id=\"{anchor}\"");
        // An anchor can also be HTML in the page.
        self.sections.iter().any(|section| section.anchor == anchor) || self.html.contains(&id)
    }
}

fn target<'a>(event: &'a Event<'_>) -> Option<&'a CowStr<'a>> {
    match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url),
        _ => None,
    }
}

/// Sets the IDs of headings, and leads links to the rendered pages.
fn rewritten<'a>(event: Event<'a>, anchors: &mut impl Iterator<Item = String>) -> Event<'a> {
    match event {
        Event::Start(Tag::Heading { level, classes, attrs, .. }) => {
            Event::Start(Tag::Heading { level, id: anchors.next().map(Into::into), classes, attrs })
        }
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            Event::Start(Tag::Link { link_type, dest_url: html_target(&dest_url).into(), title, id })
        }
        event => event,
    }
}

/// `a.md#b` is `a.html#b` in the book, and a folder its list.
fn html_target(target: &str) -> String {
    if is_external(target) || target.starts_with('#') {
        return target.to_owned();
    }
    let (path, anchor) =
        target.split_once('#').map_or((target, String::new()), |(path, anchor)| (path, format!("#{anchor}")));
    match path.strip_suffix('/') {
        Some(folder) => format!("{folder}/index.html{anchor}"),
        None => super::html_path(path) + &anchor,
    }
}

pub(super) fn is_external(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// Splits a page at its headings. Text before the first heading is a section of level 0.
fn sections(events: &[Event<'_>]) -> Vec<Section> {
    let (mut sections, mut used) = (vec![Section::default()], BTreeMap::new());
    let mut in_heading = false;
    for event in events {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                in_heading = true;
                sections.push(Section { level: number(*level), ..Section::default() });
            }
            Event::End(TagEnd::Heading(_)) => {
                in_heading = false;
                if let Some(section) = sections.last_mut() {
                    section.anchor = anchor(&section.heading, &mut used);
                }
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(section) = sections.last_mut() {
                    if in_heading { &mut section.heading } else { &mut section.text }.push_str(text);
                }
            }
            Event::SoftBreak | Event::HardBreak | Event::End(_) => {
                let section = sections.last_mut();
                section
                    .into_iter()
                    .filter(|section| !section.text.ends_with(' '))
                    .for_each(|section| section.text.push(' '));
            }
            _ => {}
        }
    }
    sections.retain(|section| section.level > 0 || !section.text.trim().is_empty());
    sections
}

fn number(level: HeadingLevel) -> u8 {
    match level {
        HeadingLevel::H1 => 1,
        HeadingLevel::H2 => 2,
        HeadingLevel::H3 => 3,
        HeadingLevel::H4 => 4,
        HeadingLevel::H5 => 5,
        HeadingLevel::H6 => 6,
    }
}

/// Anchor of a heading by GitHub's rules, so that links work there and in the book.
fn anchor(heading: &str, used: &mut BTreeMap<String, usize>) -> String {
    let letters = heading.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    let name: String =
        letters.flat_map(char::to_lowercase).map(|letter| if letter == ' ' { '-' } else { letter }).collect();
    let count = used.entry(name.clone()).or_default();
    *count += 1;
    if *count == 1 { name } else { format!("{name}-{}", *count - 1) }
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
