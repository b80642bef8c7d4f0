! Ranks store their blocks of one global array, load those of others, and get their errors.
program blocks
    use, intrinsic :: iso_fortran_env, only: int64, real32, real64
    use engram
    use mpi
    implicit none
    integer(int64), parameter :: nx = 6, ny = 8
    type(engram_pool) :: pool
    integer :: ierr, rank, ranks, status, length
    integer(int64) :: mine, y, x
    integer(int64), allocatable :: dims(:)
    real(real64), allocatable :: block(:, :), other(:, :)
    real(real32) :: narrow(1)
    character(1000) :: path

    call MPI_Init(ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
    call get_command_argument(1, path, length)
    if (rank == 0) call engram_create(pool, path(:length), 64_int64 * 1024**2, force=.true.)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    if (rank /= 0) call engram_open(pool, path(:length), force=.true.)

    mine = ny / ranks
    allocate (block(nx, mine), other(nx, mine))
    do y = 1, mine
        do x = 1, nx
            block(x, y) = x + 100 * (rank * mine + y)
        end do
    end do
    call engram_alloc(pool, "field/T", engram_real64, [nx, ny])
    call engram_store(pool, "field/T", engram_real64, block, [1_int64, rank * mine + 1], [nx, mine])
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    y = mod(rank + 1, ranks) * mine
    call engram_load(pool, "field/T", engram_real64, other, [1_int64, y + 1], [nx, mine])
    if (other(nx, mine) /= nx + 100 * (y + mine)) error stop "another rank's block is wrong"
    call engram_dims(pool, "field/T", dims)
    if (any(dims /= [nx, ny])) error stop "the dimensions are wrong"

    call engram_alloc(pool, "field/encoded", engram_real64, [nx, ny], codec="shuffle+lz4")
    call engram_store(pool, "field/encoded", engram_real64, block, [1_int64, rank * mine + 1], &
                      [nx, mine])
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call engram_load(pool, "none", engram_real64, other, [1_int64], [1_int64], status)
    if (status /= 1 .or. index(engram_message(), "none") == 0) error stop "a missing id"
    call engram_alloc(pool, "field/T", engram_real64, [ny, nx], status)
    if (status /= 2 .or. index(engram_message(), "(8, 6)") == 0) error stop "other dimensions"
    call engram_store(pool, "field/T", engram_real64, block, [2_int64, 1_int64], [nx, mine], status)
    if (status /= 11 .or. index(engram_message(), "[0, 1]") == 0) error stop "beyond the array"
    call engram_store(pool, "field/T", engram_real32, narrow, [1_int64, 1_int64], &
                      [1_int64, 1_int64], status)
    if (status /= 11 .or. index(engram_message(), "another type") == 0) error stop "another type"
    call engram_store(pool, "field/T", engram_real64, block, [1_int64, 1_int64], [nx, ny + 1], &
                      status)
    if (status /= 11 .or. index(engram_message(), "another size") == 0) error stop "another size"
    call engram_close(pool)
    if (rank == 0) print "(a)", "all is well"
    call MPI_Finalize(ierr)
end program
