// Ranks of MPI: errors that all of them throw, and clusters that they publish to together.
#ifndef PMEMCPY_RANKS_HPP
#define PMEMCPY_RANKS_HPP

#include "cluster.hpp"

#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <mpi.h>
#include <string>
#include <utility>
#include <vector>

namespace pmemcpy {
namespace detail {

// Throws on every rank what one of them met, the lowest if there are several.
inline void throw_together(MPI_Comm comm, int status, std::string message) {
    int rank = 0, ranks = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    int mine = status == ENGRAM_STATUS_OK ? ranks : rank, first = 0;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm);
    if (first == ranks) return;
    int said[2] = {status, static_cast<int>(message.size())};
    MPI_Bcast(said, 2, MPI_INT, first, comm);
    message.resize(static_cast<std::size_t>(said[1]));
    MPI_Bcast(&message[0], said[1], MPI_CHAR, first, comm);
    engram::raise(static_cast<engram_status>(said[0]),
                  "rank " + std::to_string(first) + ": " + message);
}

// Runs something on a rank, and tells all what came of it.
template <class Work>
void each_rank(MPI_Comm comm, Work &&work) {
    int status = ENGRAM_STATUS_OK;
    std::string message;
    try {
        work();
    } catch (const Error &error) {
        status = error.status();
        message = error.what();
    } catch (const std::exception &error) {
        status = ENGRAM_STATUS_OS;
        message = error.what();
    }
    throw_together(comm, status, message);
}

// The ranks of a communicator, by one of their own.
class RanksOf : public Peers {
public:
    explicit RanksOf(MPI_Comm comm) {
        MPI_Comm_dup(comm, &comm_);
        MPI_Comm_rank(comm_, &rank_);
        MPI_Comm_size(comm_, &ranks_);
        MPI_Comm node;
        MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
        MPI_Comm_rank(node, &rank_here_);
        MPI_Comm_free(&node);
    }
    ~RanksOf() override {
        int is_over = 0;
        MPI_Finalized(&is_over);
        if (!is_over) MPI_Comm_free(&comm_);
    }
    int rank() const override { return rank_; }
    bool serves() const override { return rank_here_ == 0; }
    void each(const std::function<void()> &work) const override { each_rank(comm_, work); }

    std::vector<std::string> gathered(const std::string &text) const override {
        const int own = static_cast<int>(text.size());
        std::vector<int> lengths(rank_ == 0 ? static_cast<std::size_t>(ranks_) : 0);
        MPI_Gather(&own, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, comm_);
        std::vector<int> begins;
        std::string joined(fitting(lengths, begins), ' ');
        MPI_Gatherv(text.data(), own, MPI_CHAR, &joined[0], lengths.data(), begins.data(), MPI_CHAR,
                    0, comm_);
        std::vector<std::string> texts;
        for (std::size_t at = 0; at < lengths.size(); ++at) {
            texts.push_back(joined.substr(static_cast<std::size_t>(begins[at]),
                                          static_cast<std::size_t>(lengths[at])));
        }
        return texts;
    }

    std::string spread(const std::string &text) const override {
        int length = static_cast<int>(text.size());
        MPI_Bcast(&length, 1, MPI_INT, 0, comm_);
        std::string given = text;
        given.resize(static_cast<std::size_t>(length));
        MPI_Bcast(&given[0], length, MPI_CHAR, 0, comm_);
        return given;
    }

    std::string dealt(const std::vector<std::string> &texts) const override {
        std::vector<int> lengths, begins;
        std::string joined;
        if (rank_ == 0) {
            for (const auto &text : texts) {
                lengths.push_back(static_cast<int>(text.size()));
                joined += text;
            }
        }
        fitting(lengths, begins);
        int own = 0;
        MPI_Scatter(lengths.data(), 1, MPI_INT, &own, 1, MPI_INT, 0, comm_);
        std::string given(static_cast<std::size_t>(own), ' ');
        MPI_Scatterv(joined.data(), lengths.data(), begins.data(), MPI_CHAR, &given[0], own,
                     MPI_CHAR, 0, comm_);
        return given;
    }

private:
    // Where each of the first rank's texts begins, and how long all are together. MPI counts them
    // in ints: more than that is an error on all ranks.
    std::size_t fitting(const std::vector<int> &lengths, std::vector<int> &begins) const {
        std::size_t all = 0;
        for (const int length : lengths) {
            begins.push_back(static_cast<int>(all));
            all += static_cast<std::size_t>(length);
        }
        each([&] {
            if (all > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
                throw engram::UnsupportedError(
                    "what all ranks have stored takes " + std::to_string(all) +
                    " bytes to tell, more than MPI brings at once: publish more often");
            }
        });
        return all;
    }

    MPI_Comm comm_ = MPI_COMM_NULL;
    int rank_ = 0, ranks_ = 0, rank_here_ = 0;
};

// Publishes to a cluster that is open yet, before MPI ends: MPI_Finalize lets go of what is kept
// with MPI_COMM_SELF first of all, while ranks can still speak to each other.
inline int finish_cluster(MPI_Comm, int, void *kept, void *) {
    const std::unique_ptr<std::shared_ptr<ClusterMap>> map(
        static_cast<std::shared_ptr<ClusterMap> *>(kept));
    try {
        (*map)->finish();
    } catch (const std::exception &error) {
        // MPI makes nothing of what is returned here, and the job would end as if all were well.
        std::fprintf(stderr, "engram: what was stored is not published: %s\n", error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return MPI_SUCCESS;
}

// Opens a cluster for all ranks of a communicator, which publish at MPI_Finalize at the latest.
inline std::shared_ptr<ClusterMap> of_ranks(const std::string &path, MPI_Comm comm) {
    auto map = std::make_shared<ClusterMap>(path, std::make_unique<RanksOf>(comm));
    int key = MPI_KEYVAL_INVALID;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, finish_cluster, &key, nullptr);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, new std::shared_ptr<ClusterMap>(map));
    MPI_Comm_free_keyval(&key);
    return map;
}

} // namespace detail
} // namespace pmemcpy

#endif // PMEMCPY_RANKS_HPP
