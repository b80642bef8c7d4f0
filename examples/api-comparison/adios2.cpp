#include <adios2.h>
#include <mpi.h>
int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double data[100] = {};
    size_t count = 100, offset = rank * count, all = ranks * count;
    adios2::ADIOS adios(MPI_COMM_WORLD);
    adios2::IO io = adios.DeclareIO("io");
    adios2::Variable<double> a = io.DefineVariable<double>("A", {all}, {offset}, {count});
    adios2::Engine engine = io.Open(argv[1], adios2::Mode::Write);
    engine.BeginStep();
    engine.Put(a, data);
    engine.EndStep();
    engine.Close();
    MPI_Finalize();
}
