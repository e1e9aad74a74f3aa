//! A drawing as SVG, with colours for light and dark pages.

use std::fmt::Write as _;

use super::layout::{Drawing, LINE, Path, Rect};
use super::source::{Kind, Picture};

// Without custom properties, which some renderers of SVG do not know.
const STYLE: &str = "\
text { font: 13px system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif; fill: #1f2328; text-anchor: middle }
.head { font-weight: 600 }
.label { font-size: 12px; fill: #57606a }
.start { text-anchor: start }
.area { fill: #f6f8fa; stroke: #d0d7de }
.ours { fill: #dbeafe; stroke: #2563eb }
.cluster { fill: #ede9fe; stroke: #7c3aed }
.cloud { fill: #dcfce7; stroke: #15803d }
.note { fill: none; stroke: none }
.arrow { fill: none; stroke: #57606a; stroke-width: 1.5 }
.dashed { stroke-dasharray: 5 4 }
.tip { fill: #57606a }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.label { fill: #9da7b3 }
.area { fill: #161b22; stroke: #3d444d }
.ours { fill: #14264d; stroke: #60a5fa }
.cluster { fill: #2a1f4d; stroke: #a78bfa }
.cloud { fill: #11301f; stroke: #4ade80 }
.note { fill: none; stroke: none }
.arrow { stroke: #9da7b3 }
.tip { fill: #9da7b3 }
}
";

pub(super) fn render(picture: &Picture, drawing: &Drawing) -> String {
    let (width, height) = drawing.size;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n<title>{}</title>\n<desc>{}</desc>\n<style>\n{STYLE}</style>\n",
        escaped(&picture.title),
        escaped(&picture.text)
    );
    for (area, place) in picture.areas.iter().zip(&drawing.areas) {
        rect(&mut svg, "area", *place);
        text(&mut svg, "label start", (place.left + 8, place.top + 14), &area.label);
    }
    for (node, place) in picture.boxes.iter().zip(&drawing.boxes) {
        rect(&mut svg, class(node.kind), *place);
        let lines = i32::try_from(node.lines.len()).unwrap_or(i32::MAX);
        let (x, y) = (place.centre().0, place.centre().1 + 5 - (lines - 1) * LINE / 2);
        for ((index, line), y) in node.lines.iter().enumerate().zip((y..).step_by(16)) {
            let is_head = index == 0 && !matches!(node.kind, Kind::Note);
            text(&mut svg, if is_head { "head" } else { "line" }, (x, y), line);
        }
    }
    for (arrow, path) in picture.arrows.iter().zip(&drawing.arrows) {
        line(&mut svg, path, arrow.dashed);
        let class = if path.centred { "label" } else { "label start" };
        for (index, line) in arrow.lines.iter().enumerate() {
            let below = i32::try_from(index).unwrap_or(i32::MAX) * LINE;
            // The arrow itself is between the first and the second line.
            let below = if path.centred && index > 0 { below + 8 } else { below };
            text(&mut svg, class, (path.label.0, path.label.1 + below), line);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Ours => "ours",
        Kind::Cluster => "cluster",
        Kind::Cloud => "cloud",
        Kind::Note => "note",
    }
}

fn rect(svg: &mut String, class: &str, place: Rect) {
    let (width, height) = (place.right - place.left, place.bottom - place.top);
    let (x, y) = (place.left, place.top);
    let _ =
        writeln!(svg, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>");
}

fn text(svg: &mut String, class: &str, (x, y): (i32, i32), content: &str) {
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escaped(content));
}

/// The line, and the tip at its end.
fn line(svg: &mut String, path: &Path, dashed: bool) {
    let class = if dashed { "arrow dashed" } else { "arrow" };
    let points: Vec<_> = path.corners.iter().map(|(x, y)| format!("{x},{y}")).collect();
    let _ = writeln!(svg, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
    if let [.., before, end] = path.corners.as_slice() {
        let (x, y) = ((end.0 - before.0).signum(), (end.1 - before.1).signum());
        let corner = |side: i32| format!("{},{}", end.0 - 9 * x + 4 * side * y, end.1 - 9 * y + 4 * side * x);
        let _ = writeln!(svg, "<polygon class=\"tip\" points=\"{},{} {} {}\"/>", end.0, end.1, corner(1), corner(-1));
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
