from coursekit.cli import main

main()
