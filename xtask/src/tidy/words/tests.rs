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
        "// indoors, forever more, kind, totold",
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
fn hits_name_file_line_word_and_replacement() {
    let root = std::env::temp_dir().join(format!("xtask-words-{}", std::process::id()));
    std::fs::create_dir_all(&root).expect("a folder");
    std::fs::write(root.join("x.rs"), "fn f() {}\n// the dearer door\n").expect("a file");
    let mut findings = Findings::default();
    check(&root, &[PathBuf::from("x.rs")], &mut findings);
    std::fs::remove_dir_all(&root).expect("the folder");
    assert_eq!(
        findings.errors,
        ["x.rs:2: \"dearer\": say instead: more expensive", "x.rs:2: \"door\": say instead: gate"]
    );
}
