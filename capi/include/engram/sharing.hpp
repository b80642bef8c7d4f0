// Who sees the members of a group, and how they are indexed. Include it beside engram.hpp.
#ifndef ENGRAM_SHARING_HPP
#define ENGRAM_SHARING_HPP

#include "../engram.hpp"

namespace engram {

// Makes a group that only its user sees (ENGRAM_SCOPE_PRIVATE), or that is shared.
inline Group create_group(const Group &above, const std::string &path, engram_scope scope) {
    return Group(taken<Group::Handle>([&](auto **to) {
        return engram_group_create_scoped(above.get(), path.c_str(), scope, to);
    }));
}

// Who sees the member at a path; the group itself at "".
inline engram_scope scope_of(const Group &group, const std::string &path) {
    auto scope = ENGRAM_SCOPE_PRIVATE;
    check(engram_scope_of(group.get(), path.c_str(), &scope));
    return scope;
}

// Each moves a member, a group with all that is below it, to another scope, all or nothing.
inline void share(const Group &group, const std::string &path) {
    check(engram_scope_share(group.get(), path.c_str()));
}
inline void unshare(const Group &group, const std::string &path) {
    check(engram_scope_unshare(group.get(), path.c_str()));
}
// All may read it then, and nobody changes it. With `closed`, also where nobody else may enter.
inline void publish(const Group &group, const std::string &path, bool closed = false) {
    check(engram_scope_publish(group.get(), path.c_str(), closed));
}
inline void unpublish(const Group &group, const std::string &path) {
    check(engram_scope_unpublish(group.get(), path.c_str()));
}

// How what is stored below a group is indexed: `IndexSettings().number("split_threshold", 4)`.
class IndexSettings {
public:
    IndexSettings() : made_(taken<decltype(made_)>(engram_index_settings_new)) {}
    IndexSettings &&indexing(engram_indexing when) && {
        return with(engram_index_settings_indexing(made_.get(), when));
    }
    IndexSettings &&dynamic(bool on) && {
        return with(engram_index_settings_dynamic(made_.get(), on));
    }
    // attributes_per_group, split_threshold, segment_rows, tail_rows, merge_sf, merge_overlap,
    // queue_max.
    IndexSettings &&number(const char *name, std::uint32_t value) && {
        return with(engram_index_settings_number(made_.get(), name, value));
    }
    // Splits the index: objects in which an attribute is below a value, and the others.
    IndexSettings &&split_on(const char *key, double value) && {
        return with(engram_index_settings_split_on(made_.get(), key, value));
    }
    IndexSettings &&split_on(const char *key, const char *text) && {
        return with(engram_index_settings_split_on_text(made_.get(), key, text));
    }
    void apply(const Group &group) const {
        check(engram_group_set_index(group.get(), made_.get()));
    }

private:
    IndexSettings &&with(engram_status status) { return check(status), std::move(*this); }
    Owned<engram_index_settings, engram_index_settings_free> made_;
};

} // namespace engram

#endif // ENGRAM_SHARING_HPP
