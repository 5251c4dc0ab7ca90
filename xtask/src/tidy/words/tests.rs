use std::path::Path;

use super::*;

fn in_rust(source: &str) -> Vec<(usize, &'static str)> {
    find(&prose::of_rust(source), &phrases())
        .into_iter()
        .map(|(line, index)| (line, WORDS[index].0))
        .collect()
}

fn in_markdown(source: &str) -> Vec<(usize, &'static str)> {
    find(&prose::of_markdown(source), &phrases())
        .into_iter()
        .map(|(line, index)| (line, WORDS[index].0))
        .collect()
}

fn hit(file: &str, line: usize, row: usize) -> Hit {
    let (word, instead) = WORDS[row];
    Hit { file: file.into(), line, word, instead }
}

fn errors(allowed: &str, hits: &[Hit]) -> Vec<String> {
    errors_with_new_lines(allowed, hits, &[])
}

fn errors_with_new_lines(allowed: &str, hits: &[Hit], new: &[BTreeSet<(PathBuf, usize)>]) -> Vec<String> {
    let mut findings = Findings::default();
    compare(&allowances(allowed).expect("valid table"), hits, new, &mut findings);
    findings.errors
}

#[test]
fn table_equals_that_of_the_glossary() {
    let text = std::fs::read_to_string(super::super::root().join(GLOSSARY)).expect("the glossary");
    let rows: Vec<(&str, &str)> = text
        .lines()
        .skip_while(|line| *line != "| not | say |")
        .skip(2)
        .map_while(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "))
        .collect();
    assert_eq!(rows, WORDS);
}

#[test]
fn words_are_found_in_comments_and_literals() {
    let source = "//! Told twice.\n/// The node is on its\n/// way.\nfn f() { log(\"it is \\\n    told\\nanew\"); } // dearer\n/* the old API */\n";
    let expected = [(1, "told"), (2, "on its way"), (5, "told"), (5, "dearer"), (6, "the old API")];
    assert_eq!(
        in_rust(source),
        [expected[0], expected[1], expected[2], (5, "anew"), expected[3], expected[4]]
    );
}

#[test]
fn code_of_rust_is_exempt() {
    for source in [
        "fn told(door: Kin) -> Weather { door.told() }",
        "// `told`, [`Kin`], crate::door, door::told, src/door.rs, door.rs, told(), told_twice, next-door",
        "/// ```\n/// let told = door;\n/// ```\nfn f() {}",
        "let key = \"kin\"; let json = r#\"{ \"kin\": 1 }\"#;",
        "let text = \"{told} and {door:?}\";",
        "fn f<'told>(a: &'told str) { let b = 'x'; }",
        "// bidirectional doors, forever more, kind, totold",
    ] {
        assert_eq!(in_rust(source), [], "{source}");
    }
}

#[test]
fn phrases_do_not_span_code_or_paragraphs() {
    for source in
        ["// on its\nfn way() {}\n// way", "// on its\n//\n// way", "f(\"of it on its\", \"way to\");"]
    {
        assert_eq!(in_rust(source), [], "{source}");
    }
}

#[test]
fn code_of_markdown_is_exempt_and_prose_is_not() {
    let text = "# Told\n\nA `told` and ``a ` dear`` [link](docs/door.md).\n\n```sh\nkin\n```\n\n~~~\ndoor\n~~~\n| dear | on its way |\nAn open ` tick.\n\nTold ` again.\n";
    assert_eq!(in_markdown(text), [(1, "told"), (12, "dear"), (12, "on its way"), (15, "told")]);
}

#[test]
fn one_section_can_be_exempt() {
    let text = "## A\ntold\n## B\ntold\n## C\ntold\n";
    assert_eq!(in_markdown(&without_section(text, "## B")), [(2, "told"), (6, "told")]);
    assert!(is_exempt(Path::new("docs/glossary.md")) && !is_exempt(Path::new("docs/knobs.md")));
}

#[test]
fn more_hits_than_allowed_name_line_word_and_replacement() {
    let allowed = "# comment\ncrates/a 1\n";
    assert!(errors(allowed, &[hit("crates/a/src/x.rs", 3, 9)]).is_empty());
    let two = [hit("crates/a/src/x.rs", 3, 9), hit("crates/a/src/x.rs", 7, 19)];
    assert_eq!(
        errors(allowed, &two),
        [
            "crates/a/src/x.rs:3: \"dearer\": say instead: more expensive",
            "crates/a/src/x.rs:7: \"door\": say instead: gate",
            "crates/a: 2 words of the table \"Say / not\" in docs/glossary.md, 1 allowed: reword new text",
        ]
    );
    assert_eq!(errors("", &two[..1]).len(), 2, "nothing is allowed without a row");
}

#[test]
fn hits_in_new_lines_are_named_alone() {
    let two = [hit("crates/a/src/x.rs", 3, 9), hit("crates/a/src/x.rs", 7, 19)];
    let diff = "--- a/crates/a/src/x.rs\n+++ b/crates/a/src/x.rs\n@@ -5 +6,2 @@ fn x()\n+one\n+two\n@@ -9,2 +10,0 @@\n";
    let new = added_lines(diff);
    assert_eq!(new.iter().map(|(_, line)| *line).collect::<Vec<_>>(), [6, 7]);
    let found = errors_with_new_lines("crates/a 1\n", &two, &[BTreeSet::new(), new]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("crates/a/src/x.rs:7: "), "{found:?}");
}

#[test]
fn fewer_hits_than_allowed_ask_for_a_lower_number() {
    let asked = "xtask/src/tidy/words_allowed.txt: lower crates/a from 2 to 1, or run cargo run -p xtask -- lower-words";
    assert_eq!(errors("crates/a 2\n", &[hit("crates/a/src/x.rs", 3, 9)]), [asked]);
    assert_eq!(errors("crates/a 2\n", &[]).len(), 1);
}

#[test]
fn the_longest_prefix_counts() {
    let hits =
        [hit("crates/a/src/x.rs", 3, 9), hit("crates/a/tests/x.rs", 3, 9), hit("crates/ab/x.rs", 3, 9)];
    assert!(errors("crates/a 1\ncrates/a/tests 1\ncrates/ab 1\n", &hits).is_empty());
}

#[test]
fn rows_without_a_number_are_an_error() {
    assert!(allowances("crates/a\n").is_err() && allowances("crates/a many\n").is_err());
}
