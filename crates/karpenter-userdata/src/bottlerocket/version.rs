//! The version of a Bottlerocket AMI, if it can be known before the instance boots.

/// One entry of `amiSelectorTerms`, reduced to the fields that may contain a version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Term {
    pub alias: Option<String>,
    pub name: Option<String>,
    pub id: Option<String>,
}

/// An AMI to which the node class resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub id: String,
    pub name: String,
}

/// The version of the node class's AMIs. It is taken from the first alias; else from a term with a name; else from the
/// name of an AMI selected by id; else from the first resolved AMI. The result may be `latest`.
pub fn of_class(terms: &[Term], images: &[Image]) -> Option<String> {
    let from_alias = || {
        let versions = terms.iter().filter_map(|term| term.alias.as_deref()?.split_once('@'));
        versions.map(|(_, version)| version).find(|version| !version.is_empty() && !version.contains('@'))
    };
    let from_name = || terms.iter().find_map(|term| in_name(term.name.as_deref()?));
    let bottlerocket = || images.iter().filter(|image| image.name.contains("bottlerocket"));
    let from_id = || {
        terms.iter().find_map(|term| {
            let id = term.id.as_deref()?;
            bottlerocket().find(|image| image.id == id).and_then(|image| in_name(&image.name))
        })
    };
    let from_resolved = || bottlerocket().find_map(|image| in_name(&image.name));
    from_alias().or_else(from_name).or_else(from_id).or_else(from_resolved).map(str::to_owned)
}

/// The version in the name of an AMI: `v1.46.0` for `bottlerocket-aws-k8s-1.33-x86_64-v1.46.0-431fe75a`.
fn in_name(name: &str) -> Option<&str> {
    name.split('-').find(|part| part.starts_with('v') && part.contains('.'))
}

/// Whether the AMI binds local disks without a list of directories, as versions from 1.46.0 on do. An unknown version
/// counts as older, because newer versions accept the list as well.
pub(crate) fn binds_by_default(version: &str) -> bool {
    if version == "latest" {
        return true;
    }
    let mut numbers = version.trim_start_matches('v').split('.');
    let (Some(major), Some(minor), Some(_)) = (numbers.next(), numbers.next(), numbers.next()) else {
        return false;
    };
    let (Ok(major), Ok(minor)) = (major.parse::<u32>(), minor.parse::<u32>()) else { return false };
    (major, minor) >= (1, 46)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(alias: &str, name: &str, id: &str) -> Term {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Term { alias: some(alias), name: some(name), id: some(id) }
    }

    #[test]
    fn versions_from_1_46_bind_default_directories() {
        for (version, expected) in [
            ("latest", true),
            ("v1.46.0", true),
            ("1.46.0", true),
            ("v1.46.0-aws", true),
            ("v1.47.1", true),
            ("v2.0.0", true),
            ("v1.45.9", false),
            ("v0.99.0", false),
            ("v1.46", false),
            ("", false),
            ("v1.x.0", false),
            ("nonsense", false),
        ] {
            assert_eq!(binds_by_default(version), expected, "{version}");
        }
    }

    #[test]
    fn version_comes_from_alias_then_name_then_id_then_resolved_ami() {
        let image = |id: &str, name: &str| Image { id: id.to_owned(), name: name.to_owned() };
        let images = [
            image("ami-0", "ubuntu-v9.9.9"),
            image("ami-1", "bottlerocket-aws-k8s-1.33-x86_64-v1.41.0-aaaa"),
            image("ami-2", "bottlerocket-aws-k8s-1.33-arm64-v1.42.0-bbbb"),
        ];
        let named = "bottlerocket-aws-k8s-1.33-x86_64-v1.43.0-cccc";
        for (terms, expected) in [
            (vec![term("bottlerocket@v1.44.0", "", "")], Some("v1.44.0")),
            (vec![term("bottlerocket@latest", "", "")], Some("latest")),
            (vec![term("", named, "")], Some("v1.43.0")),
            (vec![term("", "", "ami-2"), term("", named, "")], Some("v1.43.0")),
            (vec![term("", "", "ami-2")], Some("v1.42.0")),
            (vec![term("", "", "ami-9")], Some("v1.41.0")),
            (vec![term("", "my-image", "")], Some("v1.41.0")),
            (vec![], Some("v1.41.0")),
        ] {
            assert_eq!(of_class(&terms, &images).as_deref(), expected, "{terms:?}");
        }
        assert_eq!(of_class(&[term("", "", "ami-0")], &images[..1]), None);
    }
}
